"""Tensors with a part replaced: what writing to a slice is in a functional graph."""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, registering
from jitney_lowering.aten.tensor import Shape, Tensor, count
from jitney_lowering.index import Index, at_most, index
from jitney_lowering.ir.scalar import Scalar, eq, where
from jitney_lowering.ir.values import Value, constant, masked, position
from jitney_lowering.rules.joins import converted
from jitney_lowering.rules.views import position_of, slice_start

aten = torch.ops.aten
SLICES: dict[Any, Rule] = {}


slices = registering(SLICES)


@slices(aten.slice_scatter.default)
def slice_scatter(call: Call) -> Tensor:
    """``x[..., start:end:step, ...]`` is the source; an element is read of one or the other, by its place."""
    x, source, dim, start, _, step = call.args
    dim = axis(dim, len(x.size))
    call.refuse_unless(isinstance(step, int), "a slice with a symbolic step")
    begin, part = slice_start(start, x.size[dim]), call.builder.spread(converted(source, x.dtype))
    count = part.size[dim]
    call.refuse_unless_sized(part.size, (*x.size[:dim], count, *x.size[dim + 1 :]))
    if count is x.size[dim] and step == 1:
        return call.result(part.load)

    def inside(i: Index) -> Scalar:
        end = begin + count * step
        conditions = [Scalar(position(i)) < Scalar(position(end))] if not at_most(x.size[dim], end) else []
        if begin != 0:
            conditions.append(Scalar(position(i)) >= Scalar(position(begin)))
        if step != 1:
            conditions.append(eq(Scalar(position((i - begin) % step)), 0))
        return functools.reduce(operator.and_, conditions, Scalar(constant(True, torch.bool)))

    def element(at: Shape) -> Value:
        here = inside(at[dim])
        new = masked(part.load((*at[:dim], (at[dim] - begin) // step, *at[dim + 1 :])), here.value)
        return where(here, Scalar(new), Scalar(x.load(at))).value

    return call.result(element)


@slices(aten.select_scatter.default)
def select_scatter(call: Call) -> Tensor:
    """``x[..., index, ...]`` is the source's."""
    x, source, dim, number = call.args
    dim = axis(dim, len(x.size))
    chosen, part = position_of(number, x.size[dim]), call.builder.spread(converted(source, x.dtype))
    call.refuse_unless_sized(part.size, (*x.size[:dim], *x.size[dim + 1 :]))
    if x.size[dim] == 1:
        return call.result(lambda at: part.load((*at[:dim], *at[dim + 1 :])))

    def element(at: Shape) -> Value:
        here = eq(Scalar(position(at[dim])), Scalar(position(chosen)))
        new = masked(part.load((*at[:dim], *at[dim + 1 :])), here.value)
        return where(here, Scalar(new), Scalar(x.load(at))).value

    return call.result(element)


@slices(aten.diagonal_scatter.default)
def diagonal_scatter(call: Call) -> Tensor:
    """``x.diagonal(offset, first, second)`` is the source."""
    x, source, offset, *dims = call.args
    first, second = (axis(dim, len(x.size)) for dim in dims)
    call.refuse_unless(isinstance(offset, int), "a diagonal with a symbolic offset")
    part = call.builder.spread(converted(source, x.dtype))
    others = [d for d in range(len(x.size)) if d not in (first, second)]
    call.refuse_unless_sized(part.size[:-1], [x.size[d] for d in others])

    def element(at: Shape) -> Value:
        here = eq(Scalar(position(at[first] + offset)), Scalar(position(at[second])))
        place = (*(at[d] for d in others), at[first] if offset >= 0 else at[second])
        return where(here, Scalar(masked(part.load(place), here.value)), Scalar(x.load(at))).value

    return call.result(element)


@slices(aten.as_strided_scatter.default)
def as_strided_scatter(call: Call) -> Tensor:
    """The source's where a place in memory is one of a grid's, such as those of a diagonal.

    From the largest stride to the smallest, a place tells its index along each dimension of the grid.
    """
    x, source, sizes, strides, first = call.args
    given = call.node.args[0].meta["val"]  # type: ignore[union-attr]
    own = given.is_contiguous() and (first is None or given.storage_offset() == 0)
    call.refuse_unless(own, "places in memory that is another tensor's")
    begin = 0 if first is None else first
    known = all(isinstance(n, int) for n in (*sizes, *strides, begin)) and 0 not in sizes
    call.refuse_unless(known, "places that depend on symbolic sizes, or none")
    dims = sorted((d for d, n in enumerate(sizes) if n != 1), key=lambda d: -strides[d])
    inner = [strides[d] * sizes[d] for d in dims[1:]] + [1]
    call.refuse_unless(all(strides[d] >= n > 0 for d, n in zip(dims, inner, strict=False)), "places that meet")
    last = begin + sum((sizes[d] - 1) * strides[d] for d in dims)
    call.refuse_unless(at_most(last, count(x.size) - 1), "places that may be outside of the tensor")
    part = call.builder.spread(converted(source, x.dtype))
    call.refuse_unless_sized(part.size, [*map(index, sizes)])

    def element(at: Shape) -> Value:
        left = index(0)
        for size, i in zip(x.size, at, strict=True):
            left = left * size + i
        left = left - begin
        here = Scalar(position(left)) >= 0
        found = [index(0)] * len(sizes)
        for d in dims:
            found[d] = left // strides[d]
            left = left % strides[d]
            here = here & (Scalar(position(found[d])) < sizes[d])
        here = here & eq(Scalar(position(left)), 0)
        return where(here, Scalar(masked(part.load(tuple(found)), here.value)), Scalar(x.load(at))).value

    return call.result(element)
