"""Symbolic sizes: where a graph's inputs say them, and what is computed from them at each call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from jitney_onnxruntime.writer import Size


class Symbols:
    """The symbols in the sizes of a graph's inputs.

    Args:
        inputs: FakeTensors and SymInts.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.places: dict[Any, tuple[int, int]] = {}  # symbol -> the input, and its dimension or -1
        for position, value in enumerate(inputs):
            sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(-1, value)]
            for dim, size in sizes:
                if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                    self.places.setdefault(size.node.expr, (position, dim))

    def unknown(self, graph: fx.Graph) -> str:
        """Why not all of the graph's sizes can be computed; empty if they can."""
        for node in graph.nodes:
            for size in _sizes(node.meta.get("val")):
                if isinstance(size, (torch.SymFloat, torch.SymBool)):
                    return "a number that is symbolic and no integer"
                if isinstance(size, torch.SymInt) and not size.node.expr.free_symbols <= set(self.places):
                    return f"no input has what is needed for the size {size}"
        return ""

    def read(self, values: Sequence[Any]) -> tuple[int, ...]:
        """What the symbols are in a call, in the order of ``places``."""
        return tuple([int(values[at]) if dim < 0 else values[at].shape[dim] for at, dim in self.places.values()])

    def computed(self, size: Size, read: tuple[int, ...]) -> int:
        """A size in a call of which ``read`` gives the symbols."""
        if isinstance(size, int):
            return size
        given = {symbol: sympy.Integer(n) for symbol, n in zip(self.places, read, strict=True)}
        return int(size.node.expr.xreplace(given))


def _sizes(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield from value.shape
        yield from value.stride()
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _sizes(item)
    else:
        yield value
