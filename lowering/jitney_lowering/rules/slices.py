"""Tensors with a part replaced: what writing to a slice is in a functional graph."""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, registering
from jitney_lowering.aten.tensor import Shape, Tensor
from jitney_lowering.index import Index
from jitney_lowering.ir.scalar import Scalar, eq, where
from jitney_lowering.ir.values import Value, masked, position
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
    if count is x.size[dim] and step == 1:
        return call.result(part.load)

    def inside(i: Index) -> Scalar:
        here = Scalar(position(i)) < Scalar(position(begin + count * step))
        if begin != 0:
            here = here & (Scalar(position(i)) >= Scalar(position(begin)))
        return here if step == 1 else here & eq(Scalar(position((i - begin) % step)), 0)

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
    if x.size[dim] == 1:
        return call.result(lambda at: part.load((*at[:dim], *at[dim + 1 :])))

    def element(at: Shape) -> Value:
        here = eq(Scalar(position(at[dim])), Scalar(position(chosen)))
        new = masked(part.load((*at[:dim], *at[dim + 1 :])), here.value)
        return where(here, Scalar(new), Scalar(x.load(at))).value

    return call.result(element)
