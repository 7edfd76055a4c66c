"""Symbolic sizes of a graph that is kept for later processes: what they are made of, in JSON, and made again."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from jitney.cache.digest import NotStorable
from jitney.torch_compat import torch_private
from jitney.torch_compat.strides import StandInMode

# By name of the sympy class: sympy's own, and torch's integer functions. They are done again on symbolic sizes.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *args: functools.reduce(operator.add, args),
    "Mul": lambda *args: math.prod(args),
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": lambda *args: functools.reduce(torch.sym_max, args),
    "Min": lambda *args: functools.reduce(torch.sym_min, args),
}


def described(size: Any) -> list[Any] | int:
    """A ``SymInt`` as lists: a symbol with its value when captured, or a function and its arguments.

    Raises:
        NotStorable: it is no int, is made by other functions, or only the running graph knows it.
    """
    if not isinstance(size, torch.SymInt):
        raise NotStorable(f"a backward graph with a {type(size).__name__}")
    return _described(size.node.expr, size.node.shape_env)


def _described(expr: Any, env: Any) -> list[Any] | int:
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        hint, known = torch_private.value_when_captured(env, expr), env.var_to_range.get(expr)
        if hint is None or known is None:
            raise NotStorable("a backward graph with sizes that depend on data")
        return ["symbol", str(expr), hint, bool(known.lower >= 2)]
    name = type(expr).__name__
    if name not in FUNCTIONS:
        raise NotStorable(f"a backward graph with a size made by {name}")
    return [name, *[_described(arg, env) for arg in expr.args]]


class Sizes:
    """Makes the symbolic sizes of one graph again, for stand-ins of ``mode``."""

    def __init__(self) -> None:
        self.env = torch_private.ShapeEnv(
            duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False
        )
        self.mode = StandInMode(shape_env=self.env, allow_non_fake_inputs=True)
        self._symbols: dict[str, Any] = {}

    def make(self, text: list[Any] | int) -> Any:
        """What ``described`` has described."""
        if isinstance(text, int):
            return text
        name, *args = text
        return self._symbol(*args) if name == "symbol" else FUNCTIONS[name](*map(self.make, args))

    def _symbol(self, name: str, hint: int, is_size: bool) -> Any:
        if name not in self._symbols:
            self._symbols[name] = self._size(name, hint) if is_size else self._number(name, hint)
        return self._symbols[name]

    def _size(self, name: str, hint: int) -> Any:
        context: Any = torch_private.StatelessSymbolicContext(dynamic_sizes=[torch_private.DimDynamic.DYNAMIC])
        like = torch.empty(hint, device="meta")
        made = self.mode.from_tensor(like, symbolic_context=context, source=torch_private.NamedSource(name))
        return made.shape[0]

    def _number(self, name: str, hint: int) -> Any:
        source = torch_private.NamedSource(name)
        return self.env.create_unspecified_symint_and_symbol(hint, source, torch_private.DimDynamic.DYNAMIC)
