"""The extreme of a long row and the sum of exponentials beside it, in one pass over memory instead of two.

After Milakov and Gimelshein, *Online normalizer calculation for softmax* (2018): where a greater value comes, what has
been summed is scaled.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jitney_lowering.ir import Apply, Nest, Reduce, Ref
from jitney_triton_gpu.emit.reduce import Reduction
from jitney_triton_gpu.emit.spaces import Axis
from jitney_triton_gpu.emit.writer import Writer


def softmax_sums(body: Sequence[Nest]) -> dict[int, int]:
    """Nests that find the greatest of a row -> those that sum ``exp(x - greatest)`` of the same row, and do no more.

    What is between them stores single results of the row, and may come after both.
    """
    found: dict[int, int] = {}
    for number, nest in enumerate(body):
        greatest = _only_reduction(nest, "max")
        if greatest is None or greatest.value.dtype is not torch.float32:
            continue
        later = next((n for n in range(number + 1, len(body)) if body[n].loops), None)
        total = _only_reduction(body[later], "sum") if later is not None else None
        if total is not None and later is not None and body[later].loops == nest.loops and _is_softmax(greatest, total):
            found[number] = later
    return found


def _only_reduction(nest: Nest, kind: str) -> Reduce | None:
    if len(nest.statements) != 1 or not nest.loops:
        return None
    (only,) = nest.statements
    return only if isinstance(only, Reduce) and only.kind == kind and only.position is None else None


def _is_softmax(greatest: Reduce, total: Reduce) -> bool:
    value = total.value
    if not isinstance(value, Apply) or value.op != "exp" or value.dtype is not torch.float32:
        return False
    (inner,) = value.args
    if not isinstance(inner, Apply) or inner.op != "sub":
        return False
    x, most = inner.args
    return x == greatest.value and isinstance(most, Ref) and most.name == greatest.name


class Online:
    """Two accumulators over the pieces of a row; made before the loop. See ``Running``."""

    def __init__(self, writer: Writer, greatest: Reduce, total: Reduce) -> None:
        self.greatest = greatest
        self.total = total
        self.made = Reduction("max", torch.float32)
        self.most, self.sum = writer.name("a"), writer.name("a")
        for name, start in ((self.most, "float('-inf')"), (self.sum, "0.0")):
            writer.line(f"{name} = tl.full({writer.shape()}, {start}, tl.float32)")

    def step(self, writer: Writer, axis: Axis) -> None:
        """One piece more, in the loop."""
        value, _ = self.made.operands(writer, self.greatest.value, None, axis)
        writer.line(f"{self.most}, {self.sum} = helpers.online({self.most}, {self.sum}, {value})")

    def results(self, writer: Writer, dim: int, keep: bool) -> list[tuple[Reduce, str]]:
        """Lines that reduce the tile along a dimension; the variable of each result."""
        best, total = writer.name("t"), writer.name("t")
        writer.line(f"{best} = {self.made.along(self.most, dim, keep)}")
        scaled = f"helpers.online_scaled({self.most}, {self.sum}, {best})"
        writer.line(
            f"{total} = helpers.online_total({Reduction('sum', torch.float32).along(scaled, dim, keep)}, {best})"
        )
        return [(self.greatest, best), (self.total, total)]
