"""Elements that go to computed places of a tensor: a copy of it, and a step that changes that.

Threads that add to few places wait for each other. Where many elements go to each place, as in a histogram, neighbours
add to different copies of the places, which are added up at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from jitney_lowering.aten.builder import Builder
from jitney_lowering.aten.tensor import ZERO, Shape, Tensor, corner, count, variables
from jitney_lowering.index import Opaque, index
from jitney_lowering.ir.loops import SCATTER, Computed
from jitney_lowering.ir.operations import HALVES
from jitney_lowering.ir.scalar import Scalar
from jitney_lowering.ir.values import Value, apply, constant, put

# Sums in these are done in another type, which threads can add to at once: as precise as eager's, or more.
_ACCUMULATED = dict.fromkeys(HALVES, torch.float32) | dict.fromkeys((torch.int8, torch.int16, torch.uint8), torch.int32)
MANY = 1 << 16  # elements for which threads wait long
COPIES = (64, 16)
WORTH = 32  # elements for each place of a copy
KINDS: dict[str, frozenset[torch.dtype]] = {
    "sum": frozenset({torch.float32, torch.float64, torch.int32, torch.int64}),
    "max": frozenset({torch.int32, torch.int64}),  # of floats nan would get lost
    "min": frozenset({torch.int32, torch.int64}),
}


def accumulated(kind: str, dtype: torch.dtype) -> torch.dtype | None:
    """The dtype in which values are put together with what is there; None if nothing does that."""
    if kind == "store":
        return dtype
    wide = _ACCUMULATED.get(dtype, dtype)
    return wide if wide in KINDS[kind] else None


def scattered(
    builder: Builder,
    x: Tensor,
    space: Shape,
    place: Callable[[Shape], Shape],
    value: Callable[[Shape], Value],
    kind: str = "store",
    mask: Callable[[Shape], Value] | None = None,
) -> Tensor:
    """``x`` after a value has gone to each of some places.

    Args:
        builder: the program under construction.
        x: not changed.
        space: the sizes of what is gone through; none of them is 0.
        place: from an index there to one of ``x``.
        value: from an index there to a value of the dtype of ``x``.
        kind: see ``Put``; with what ``accumulated`` knows.
        mask: where it is false nothing is done.
    """
    change = _Change(space, place, value, mask)
    copies = _copies(builder, x.size, space) if kind == "sum" else 1
    return _by_copies(builder, x, change, copies) if copies > 1 else _changed(builder, x, change, kind)


@dataclass(frozen=True)
class _Change:
    """What goes where; see ``scattered``."""

    space: Shape
    place: Callable[[Shape], Shape]
    value: Callable[[Shape], Value]
    mask: Callable[[Shape], Value] | None


def _copies(builder: Builder, places: Shape, space: Shape) -> int:
    """To how many copies of the places neighbours add; 1: to the places themselves."""
    elements, targets = (builder.sizes.hint(count(size)) for size in (space, places))
    if not builder.policy.scatters or elements < MANY:
        return 1
    return next((copies for copies in COPIES if elements >= WORTH * copies * targets), 1)


def _by_copies(builder: Builder, x: Tensor, change: _Change, copies: int) -> Tensor:
    dtype = accumulated("sum", x.dtype)
    assert dtype is not None
    zeros = Tensor((*x.size, index(copies)), dtype, x.device, lambda at: constant(0, dtype))

    def spread(at: Shape) -> Shape:
        return (*change.place(at), sum(at, ZERO) % copies)

    total = builder.reduce("sum", _changed(builder, zeros, replace(change, place=spread), "sum"), [len(x.size)])

    def element(at: Shape) -> Value:
        return (Scalar(x.load(at)).to(dtype) + Scalar(total.load(at))).to(x.dtype).value

    return Tensor(x.size, x.dtype, x.device, element, wanted=x.wanted)


def _changed(builder: Builder, x: Tensor, change: _Change, kind: str) -> Tensor:
    """A copy of the tensor, in the dtype in which values are put together, and the step that changes it."""
    dtype = accumulated(kind, x.dtype)
    assert dtype is not None
    start = x if dtype is x.dtype else _converted(x, dtype)
    stride = builder.strides_for(x)
    buffer = builder.buffer(dtype, x.size, stride, x.device, "s")
    base = builder.stored(start, stride, (buffer.name, ZERO))
    at = corner(change.space)
    where = buffer.place(change.place(at))
    computed = tuple([(atom, builder.atoms[atom]) for atom in where.sorted_atoms if isinstance(atom, Opaque)])
    given = apply("cast", change.value(at), dtype=dtype)
    stored = put(base.buffer, where, computed, given, kind, None if change.mask is None else change.mask(at))
    own = tuple(v for v in variables(change.space) if v.size != 1)
    builder.steps.append(Computed(buffer.name, own, ZERO, stored, kind=SCATTER, nodes=builder.nodes()))
    made = builder.tensor(buffer)
    return made if dtype is x.dtype else _converted(made, x.dtype)


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    return Tensor(x.size, dtype, x.device, lambda at: apply("cast", x.load(at), dtype=dtype), wanted=x.wanted)
