"""Other shapes of the same elements. In a functional graph a view is as good as a copy."""

from __future__ import annotations

from typing import Any

import torch

from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer, number_of

aten = torch.ops.aten
TO_THE_END = 2**63 - 1


@rule(
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten._reshape_alias.default,
)  # fmt: skip
def reshaped(w: Writer, call: Call) -> Value:
    """The result's sizes are known."""
    return w.reshaped(w.value(call["self"]), call.out.shape)


def transposed(w: Writer, x: Value, order: list[int]) -> Value:
    """The dimensions in another order."""
    return w.op("Identity", x) if order == sorted(order) else w.op("Transpose", x, perm=order)


def swapped(w: Writer, x: Value, dims: int, one: int = -2, other: int = -1) -> Value:
    """Two dimensions exchanged, of so many."""
    order = list(range(dims))
    if dims:
        order[one], order[other] = order[other], order[one]
    return transposed(w, x, order)


@rule(aten.permute.default)
def permute(w: Writer, call: Call) -> Value:
    """Dimensions in a given order."""
    dims = call.out.dim()
    return transposed(w, w.value(call["self"]), [dim % dims for dim in call["dims"]])


@rule(aten.transpose.int)
def transpose(w: Writer, call: Call) -> Value:
    """Two dimensions exchanged."""
    return swapped(w, w.value(call["self"]), call.out.dim(), call["dim0"], call["dim1"])


@rule(aten.t.default)
def t(w: Writer, call: Call) -> Value:
    """A matrix transposed; a vector stays."""
    x, dims = w.value(call["self"]), call.out.dim()
    return swapped(w, x, dims) if dims == 2 else w.op("Identity", x)


@rule(aten.expand.default)
def expand(w: Writer, call: Call) -> Value:
    """Sizes of 1 repeated."""
    x = w.value(call["self"])
    if x.dtype is torch.bfloat16:
        raise Refused("ONNX Runtime has no such kernel")
    return w.filled(x, call.out.shape) if call.out.dim() else w.op("Identity", x)


def sliced(w: Writer, x: Value, dim: int, start: Any, end: Any, step: int = 1) -> Value:
    """A part of one dimension; positions may be symbolic."""
    axis, steps = w.constant([dim], torch.int64), w.constant([step], torch.int64)
    return w.op("Slice", x, w.sizes([start]), w.sizes([end]), axis, steps)


@rule(aten.slice.Tensor)
def slice_(w: Writer, call: Call) -> Value:
    """ONNX Runtime counts from the end and clips as torch does."""
    start = 0 if call["start"] is None else number_of(call["start"])
    end = TO_THE_END if call["end"] is None else number_of(call["end"])
    if type(start) is not int or type(end) is not int or type(call["step"]) is not int:
        raise Refused("symbolic positions")
    x = w.value(call["self"])
    return sliced(w, x, call["dim"] % call.out.dim(), start, min(end, TO_THE_END), call["step"])


@rule(aten.select.int)
def select(w: Writer, call: Call) -> Value:
    """One place of a dimension."""
    index = number_of(call["index"])
    if type(index) is not int:
        raise Refused("a symbolic position")
    dim = call["dim"] % call.fake("self").dim()
    return w.op("Gather", w.value(call["self"]), w.constant(index, torch.int64), axis=dim)


@rule(aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int)
def split(w: Writer, call: Call) -> tuple[Value, ...]:
    """Parts of one dimension, as many slices."""
    x, source = w.value(call["self"]), call.fake("self")
    dim = call["dim"] % source.dim()
    if type(source.shape[dim]) is not int:
        raise Refused("a symbolic size is split")
    if "split_sizes" not in call.arguments and "split_size" not in call.arguments:
        places = range(source.shape[dim])
        return tuple(w.op("Gather", x, w.constant(place, torch.int64), axis=dim) for place in places)
    parts, start = [], 0
    for part in call.out:
        if type(part.shape[dim]) is not int:
            raise Refused("a symbolic size is split")
        parts.append(sliced(w, x, dim, start, start + part.shape[dim]))
        start += part.shape[dim]
    return tuple(parts)


@rule(aten.flip.default)
def flip(w: Writer, call: Call) -> Value:
    """Dimensions backwards."""
    x, dims = w.op("Identity", w.value(call["self"])), call.out.dim()
    for dim in call["dims"] if dims else ():
        x = sliced(w, x, dim % dims, -1, -(2**63) + 1, -1)
    return x


@rule(aten.tril.default, aten.triu.default)
def triangle(w: Writer, call: Call) -> Value:
    """One half of matrices, the other 0."""
    upper = int(call.node.target is aten.triu.default)
    diagonal = number_of(call["diagonal"])
    if type(diagonal) is not int:
        raise Refused("a symbolic diagonal")
    return w.op("Trilu", w.value(call["self"]), w.constant(diagonal, torch.int64), upper=upper)
