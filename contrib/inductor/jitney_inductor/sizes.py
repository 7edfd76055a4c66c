"""Symbolic sizes: where a graph's inputs say them, and what Inductor has assumed about them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch import fx

# ShapeEnv -> how many guards it had before Inductor first saw it. Later ones are Inductor's, and jitney, whose guards
# were written by then, does not check them.
_before: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def _expressions(inputs: Sequence[Any]) -> Iterator[tuple[int, int, Any]]:
    """Symbolic numbers of the inputs: position, dimension (-1 for the input itself), number."""
    for position, value in enumerate(inputs):
        if isinstance(value, torch.SymInt):
            yield position, -1, value
        elif isinstance(value, torch.Tensor):
            sizes: Sequence[Any] = value.shape
            yield from ((position, dim, size) for dim, size in enumerate(sizes) if isinstance(size, torch.SymInt))


def places(inputs: Sequence[Any]) -> dict[sympy.Symbol, tuple[int, int]]:
    """Each symbol that is the size of an input, or an input: the position, and the dimension or -1."""
    found: dict[sympy.Symbol, tuple[int, int]] = {}
    for position, dim, number in _expressions(inputs):
        if isinstance(number.node.expr, sympy.Symbol):
            found.setdefault(number.node.expr, (position, dim))
    return found


def unknown_symbols(graph: fx.GraphModule, inputs: Sequence[Any]) -> str:
    """Why Inductor cannot have this graph; empty if it can."""
    if any(isinstance(v, (torch.SymFloat, torch.SymBool)) for v in inputs):
        return "an input is a symbolic float or bool"
    known = set(places(inputs))
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        numbers = [value] if isinstance(value, torch.SymInt) else getattr(value, "shape", ())
        for number in numbers:
            if isinstance(number, torch.SymInt) and not number.node.expr.free_symbols <= known:
                return f"no input has the size {number} for itself"
    return ""


class Assumptions:
    """What Inductor takes for granted about sizes while it compiles; made before, asked after.

    Args:
        inputs: of the graph: FakeTensors and SymInts.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.places = places(inputs)
        self.env = next((number.node.shape_env for _, _, number in _expressions(inputs)), None)
        if self.env is not None:
            _before.setdefault(self.env, len(self.env.guards))

    def check(self) -> Callable[[Sequence[Any]], bool] | None:
        """Do the sizes of these inputs fit? None if nothing was assumed."""
        if self.env is None:
            return None
        added = {guard.expr for guard in self.env.guards[_before[self.env] :]} - {sympy.true}
        added = {e for e in added if e.free_symbols}
        if not added:
            return None
        symbols = sorted({s for e in added for s in e.free_symbols}, key=str)
        if not set(symbols) <= set(self.places):
            return lambda values: False  # about sizes that only another graph has
        where = [self.places[symbol] for symbol in symbols]
        known: dict[tuple[int, ...], bool] = {}

        def holds(values: Sequence[Any]) -> bool:
            sizes = tuple(int(values[i] if dim < 0 else values[i].shape[dim]) for i, dim in where)
            found = known.get(sizes)
            if found is None:
                given = {s: sympy.Integer(n) for s, n in zip(symbols, sizes, strict=True)}
                found = known[sizes] = all(e.xreplace(given) == sympy.true for e in added)
            return found

        return holds
