"""Arithmetic on symbolic floats, step by step as Python does it.

torch's own symbolic floats simplify (``1 - b ** n`` is reordered), so they round otherwise than Python. Here each
result is a symbol of its own, and its definition, one Python operation, is kept beside it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from jitney import _torch

# The operations that may be put off until the graph runs, as Python text.
OPERATIONS: dict[Callable[..., Any], str] = {
    operator.add: "({} + {})",
    operator.sub: "({} - {})",
    operator.mul: "({} * {})",
    operator.truediv: "({} / {})",
    operator.floordiv: "({} // {})",
    operator.mod: "({} % {})",
    operator.pow: "({} ** {})",
    operator.neg: "(-{})",
    operator.pos: "(+{})",
    abs: "_b.abs({})",
    **{
        getattr(math, name): f"_math.{name}({{}})"
        for name in ("sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "tanh", "fabs")
    },
    math.pow: "_math.pow({}, {})",
}
NUMBERS = (int, float, torch.SymInt, torch.SymFloat)


@dataclass
class Definition:
    """``target(*args)``; the arguments are numbers and symbolic numbers."""

    target: Callable[..., Any]
    args: tuple[Any, ...]


class Scalars:
    """The symbolic floats that have a definition.

    Args:
        env: the ShapeEnv that makes the symbols.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.definitions: dict[Any, Definition] = {}  # sympy symbol -> how it is computed
        self.hints: dict[Any, float] = {}

    @staticmethod
    def applies(target: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Is it float arithmetic with a symbol in it?"""
        kinds = set(map(type, args))
        if target not in OPERATIONS or not kinds <= {int, float, torch.SymInt, torch.SymFloat}:
            return False
        return torch.SymFloat in kinds or (torch.SymInt in kinds and float in kinds)

    def compute(self, target: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The symbolic result; None where Python would raise or give something else than a float."""
        known = [self.hint(a) for a in args]
        if None in known:
            return self._define(self.env.create_unbacked_symfloat(), target, args, None)
        try:
            value = target(*known)
        except (ArithmeticError, ValueError):
            return None
        if type(value) is not float:
            return None
        return self._define(self._backed(value), target, args, value)

    def unknown(self) -> Any:
        """A float that only the running graph knows."""
        return self.env.create_unbacked_symfloat()

    def hint(self, value: Any) -> Any:
        """The number that a symbolic one was when captured; None if nobody knows."""
        if type(value) not in (torch.SymInt, torch.SymFloat):
            return value
        expr = value.node.expr
        if expr in self.hints:
            return self.hints[expr]
        return value.node.hint

    def _backed(self, value: float) -> Any:
        named = _torch.NamedSource(f"float{len(self.definitions)}")
        symbol = self.env.create_unspecified_symbol(value, named, _torch.DimDynamic.DYNAMIC)
        return self.env.create_symfloatnode(symbol, hint=value, source=named)

    def _define(self, made: Any, target: Callable[..., Any], args: tuple[Any, ...], value: float | None) -> Any:
        self.definitions[made.node.expr] = Definition(target, args)
        if value is not None:
            self.hints[made.node.expr] = value
        return made
