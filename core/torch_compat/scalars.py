"""Arithmetic on symbolic numbers, as nodes of a graph; on symbolic floats step by step as Python does it.

torch's own symbolic floats simplify (``1 - b ** n`` is reordered), so they round otherwise than Python. Here each
result is a symbol of its own, and its definition, one Python operation, is kept beside it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from jitney._util import negative_powers
from jitney.torch_compat import torch_private

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
    max: "_b.max({}, {})",
    min: "_b.min({}, {})",
    math.pow: "_math.pow({}, {})",
    math.sqrt: "_math.sqrt({})",
    math.log: "_math.log({})",
    math.exp: "_math.exp({})",
    math.sin: "_math.sin({})",
    math.cos: "_math.cos({})",
    math.tanh: "_math.tanh({})",
}


def _power(base: Any, exponent: Any) -> bool:
    """Does it neither overflow nor leave the real numbers? Asked so that few numbers answer otherwise."""
    if type(exponent) in (int, float) and 0 < exponent <= 1:
        return bool(base >= 0)
    if type(exponent) is int and 0 <= exponent <= 30:
        return _between(base, -1e10, 1e10)
    if type(base) in (int, float) and 0 < base <= 1 and bool(exponent >= 0):
        return True
    if _between(base, 1e-10, 1e10) and _between(exponent, -30, 30):
        return True
    return bool(base > 0) and bool(base <= 1) and bool(exponent >= 0)


def _between(value: Any, least: float, most: float) -> bool:
    return bool(value >= least) and bool(value <= most)


# Where an operation raises nothing and gives a float: asked of the symbols, so that it becomes a guard.
DOMAINS: dict[Callable[..., Any], Callable[..., bool]] = {
    operator.truediv: lambda a, b: bool(b != 0),
    operator.floordiv: lambda a, b: bool(b != 0),
    operator.mod: lambda a, b: bool(b != 0),
    operator.pow: _power,
    math.pow: _power,
    math.sqrt: lambda a: bool(a >= 0),
    math.log: lambda a: bool(a > 0),
    math.exp: lambda a: bool(a <= 700),
    math.sin: lambda a: _between(a, -1e300, 1e300),
    math.cos: lambda a: _between(a, -1e300, 1e300),
}
# Those that give whole numbers.
WHOLE: dict[Callable[..., Any], str] = {
    int: "_b.int({})",
    math.floor: "_math.floor({})",
    math.ceil: "_math.ceil({})",
    math.trunc: "_math.trunc({})",
}
EXACT = 2**53  # up to here a float is any whole number
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
        self.made: dict[Any, Any] = {}  # symbol -> the SymFloat that is it

    def applies(self, target: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Is it float arithmetic with a symbol in it, or rounding? ``max`` and ``min`` of what is known are guards."""
        kinds = set(map(type, args))
        if target in WHOLE:
            return target is not int and len(args) == 1 and kinds <= {torch.SymInt, torch.SymFloat}
        if target in (max, min):
            return len(args) == 2 and kinds <= {float, torch.SymFloat} and any(map(self.is_unknown, args))
        if (
            target not in OPERATIONS
            or OPERATIONS[target].count("{}") != len(args)
            or not kinds <= {int, float, torch.SymInt, torch.SymFloat}
        ):
            return False
        return torch.SymFloat in kinds or (torch.SymInt in kinds and float in kinds)

    def compute(self, target: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The symbolic result; None where Python may raise or give another class (a float, for ``WHOLE`` an int).

        Of a number that only the running graph knows nothing can be asked: those are torch's optimizers' own.
        """
        if target in WHOLE:
            return self._whole(target, *args)
        known = [self.hint(a) for a in args]
        if None in known:
            return self._define(self.env.create_unbacked_symfloat(), target, args, None)
        if not all(map(math.isfinite, known)) or (target in DOMAINS and not DOMAINS[target](*args)):
            return None
        value = target(*known)
        assert type(value) is float
        if not math.isfinite(value):
            return None
        return self._define(self._backed(value), target, args, value)

    def _whole(self, target: Callable[..., Any], value: Any) -> Any:
        if type(value) is torch.SymInt:
            return value
        known = self.hint(value)
        if known is None or not _between(value, -EXACT, EXACT):
            return None
        named = torch_private.NamedSource(f"whole{len(self.definitions)}")
        made = self.env.create_unspecified_symint_and_symbol(target(known), named, torch_private.DimDynamic.DYNAMIC)
        return self._define(made, target, (value,), target(known))

    def truncated(self, value: Any) -> Any:
        """``int`` of a float that only the running graph knows."""
        return self._define(self.env.create_unbacked_symint(), int, (value,), None)

    def unknown(self) -> Any:
        """A float that only the running graph knows."""
        return self.env.create_unbacked_symfloat()

    def is_unknown(self, value: Any) -> bool:
        """Does only the running graph know this number?"""
        return type(value) in (torch.SymFloat, torch.SymInt) and self.hint(value) is None

    def compares(self, value: Any) -> bool:
        """May it be compared with a symbolic number, which becomes a guard? Not what is unknown or no number (NaN)."""
        return not self.is_unknown(value) and (type(value) is not float or value == value)

    def hint(self, value: Any) -> Any:
        """The number that a symbolic one was when captured; None if nobody knows."""
        if type(value) not in (torch.SymInt, torch.SymFloat):
            return value
        expr = value.node.expr
        if expr in self.hints:
            return self.hints[expr]
        return value.node.hint

    def _backed(self, value: float) -> Any:
        named = torch_private.NamedSource(f"float{len(self.definitions)}")
        symbol = self.env.create_unspecified_symbol(value, named, torch_private.DimDynamic.DYNAMIC)
        return self.env.create_symfloatnode(symbol, hint=value, source=named)

    def _define(self, made: Any, target: Callable[..., Any], args: tuple[Any, ...], value: float | None) -> Any:
        self.definitions[made.node.expr] = Definition(target, args)
        self.made[made.node.expr] = made
        if value is not None:
            self.hints[made.node.expr] = value
        return made


class _Recorder(fx.proxy.GraphAppendingTracer):
    """Appends to a graph, and remembers what it has appended."""

    def __init__(self, graph: fx.Graph) -> None:
        super().__init__(graph)
        self.nodes: list[fx.Node] = []

    def create_node(self, kind: str, target: Any, args: Any, *others: Any, **kwargs: Any) -> fx.Node:
        """Append one node."""
        target = negative_powers.as_a_call(target, args)
        self.nodes.append(super().create_node(kind, target, args, *others, **kwargs))
        return self.nodes[-1]


def expression_nodes(graph: fx.Graph, expr: Any, symbols: Mapping[Any, fx.Node], key: str) -> Any:
    """The node (or plain number) that computes a sympy expression where the graph inserts, made of its operations.

    Args:
        graph: where the nodes go.
        expr: over these symbols.
        symbols: the node that each is.
        key: each new node has its symbolic value under ``meta[key]``, as those of the symbols have.
    """
    recorder = _Recorder(graph)
    env = {symbol: fx.Proxy(node, recorder) for symbol, node in symbols.items()}
    made = torch_private.sympy_interp(torch_private.PythonArithmetic, env, expr)
    for node in recorder.nodes:
        _describe(node, key)
    return made.node if isinstance(made, fx.Proxy) else made


def _describe(node: fx.Node, key: str) -> None:
    """Give a node of size arithmetic its value under ``meta[key]``, from those of its arguments."""
    args: Any = fx.node.map_arg(node.args, lambda a: a.meta[key])
    if callable(node.target):
        node.meta[key] = node.target(*args)
    else:
        node.meta[key] = getattr(args[0], node.target)(*args[1:])
