"""torch's symbolic sizes as index expressions, and where the symbols are read when a graph runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney.torch_compat import torch_private
from jitney_lowering.index import Index, Size, equal, index, max_, min_
from jitney_lowering.ir.loops import Reading
from jitney_lowering.signals import NotLowered


class Sizes:
    """Index expressions of the sizes in one graph.

    Args:
        inputs: the graph's inputs: FakeTensors and symbols; every symbol must be one, or a size, stride or offset.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.readings: dict[Size, Reading] = {}
        self._hints: dict[Any, int] = {}
        self._made: dict[Any, Index] = {}  # sympy expression -> Index
        self._symbolic: dict[Index, torch.SymInt] = {}  # and the size that it was
        for number, value in enumerate(inputs):
            if isinstance(value, torch.SymInt):
                self._read(value, Reading(number, "value"))
        for number, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                for dim, size in enumerate(value.shape):
                    self._read(size, Reading(number, "size", dim))
        for number, value in enumerate(inputs):  # only what no size says
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                for dim, stride in enumerate(value.stride()):
                    self._read(stride, Reading(number, "stride", dim))

    def _read(self, value: Any, reading: Reading) -> None:
        if not isinstance(value, torch.SymInt) or not value.node.expr.is_Symbol or value.node.expr in self._made:
            return
        symbol = value.node.expr
        low, high = _range(value)
        size = Size(str(symbol), low, high)
        self._made[symbol] = index(size)
        self.readings[size] = reading
        hint = value.node.hint
        self._hints[size] = int(hint) if hint is not None else 4096

    def index(self, value: Any) -> Index:
        """An int or ``SymInt`` as an index expression.

        Raises:
            NotLowered: it depends on data, or is made with operations that index expressions lack.
        """
        if isinstance(value, torch.SymInt):
            expr = value.node.expr
            if expr not in self._made and _is_one(value):
                self._made[expr] = index(1)
            found = self._expression(expr)
            self._symbolic.setdefault(found, value)
            return found
        return index(value)

    def shape(self, values: Sequence[Any]) -> tuple[Index, ...]:
        """Sizes or strides of a FakeTensor."""
        return tuple([self.index(v) for v in values])

    def are_equal(self, one: Index, other: Index) -> bool:
        """Are they proven to be equal, or do guards say so, as of ``s * t`` and ``u * v``?"""
        if equal(one, other):
            return True
        a, b = self._symbolic.get(one), self._symbolic.get(other)
        return a is not None and b is not None and torch_private.statically_known_true(a == b)

    def hint(self, value: Index) -> int:
        """What the expression was when the graph was captured."""
        return value.value if value.value is not None else value.evaluate(self._hints)

    def _expression(self, expr: Any) -> Index:
        found = self._made.get(expr)
        if found is None:
            if expr.is_Integer:
                found = index(int(expr))
            else:
                rule = EXPRESSIONS.get(type(expr).__name__)
                if rule is None:
                    raise NotLowered(f"the size {expr}")
                found = rule(*[self._expression(arg) for arg in expr.args])
            self._made[expr] = found
        return found


def _is_one(value: torch.SymInt) -> bool:
    """Do the guards say that an expression is 1, as in ``s // 17``? Then its dimension is one that broadcasts."""
    return value.node.hint == 1 and torch_private.statically_known_true(value == 1)


def _range(value: torch.SymInt) -> tuple[int | None, int | None]:
    known = value.node.shape_env.var_to_range.get(value.node.expr)
    if known is None:
        return (None, None)

    def bound(limit: Any) -> int | None:
        return int(limit) if limit.is_Integer and abs(int(limit)) < 2**62 else None

    return bound(known.lower), bound(known.upper)


def _power(base: Index, exponent: Index) -> Index:
    if exponent.value is None or exponent.value < 0:
        raise NotLowered(f"the size {base} to the power {exponent}")
    return math.prod([base] * exponent.value, start=index(1))


def _positive(by: Index) -> Index:
    low = by.bounds()[0]
    if low is None or low < 1:
        raise NotLowered(f"a division by the size {by}")
    return by


# By name of the sympy class: sympy's own, and torch's integer functions.
EXPRESSIONS: dict[str, Callable[..., Index]] = {
    "Add": lambda *args: sum(args, start=index(0)),
    "Mul": lambda *args: math.prod(args, start=index(1)),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": lambda a, b: a // _positive(b),
    "CleanDiv": lambda a, b: a // _positive(b),
    "Mod": lambda a, b: a % _positive(b),
    "PythonMod": lambda a, b: a % _positive(b),
    "Max": max_,
    "Min": min_,
}
