"""Tensors put together, repeated, padded."""

from __future__ import annotations

import torch

from jitney_onnxruntime.rules.views import sliced
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer, number_of

aten = torch.ops.aten


@rule(aten.cat.default)
def cat(w: Writer, call: Call) -> Value:
    """Of several dtypes, too; a part of shape (0,) is as if it were not there."""
    given = [part for part in call["tensors"] if tuple(part.meta["val"].shape) != (0,)]
    if not given:
        raise Refused("a tensor without elements")
    parts = [w.cast(w.value(part), call.out.dtype) for part in given]
    return w.op("Concat", *parts, axis=call["dim"] % call.out.dim())


@rule(aten.stack.default)
def stack(w: Writer, call: Call) -> Value:
    """Along a new dimension."""
    dim = call["dim"] % call.out.dim()
    sizes = [*call.out.shape[:dim], 1, *call.out.shape[dim + 1 :]]
    parts = [w.reshaped(w.cast(w.value(part), call.out.dtype), sizes) for part in call["tensors"]]
    return w.op("Concat", *parts, axis=dim)


@rule(aten.repeat.default)
def repeat(w: Writer, call: Call) -> Value:
    """New dimensions come first."""
    x, source = w.value(call["self"]), call.fake("self")
    added = call.out.dim() - source.dim()
    if added:
        x = w.reshaped(x, [*[1] * added, *source.shape])
    return w.op("Tile", x, w.sizes(call["repeats"])) if call.out.dim() else w.op("Identity", x)


def padded(w: Writer, x: Value, before: list[int], after: list[int], number: Value) -> Value:
    """A border of one number."""
    return w.op("Pad", x, w.constant([*before, *after], torch.int64), number, mode="constant")


@rule(aten.constant_pad_nd.default)
def constant_pad(w: Writer, call: Call) -> Value:
    """No border may be negative."""
    pads = [number_of(n) for n in call["pad"]]
    if any(type(n) is not int or n < 0 for n in pads):
        raise Refused("a border that is symbolic or negative")
    dims = call.out.dim()
    before, after = [0] * dims, [0] * dims
    for at, (low, high) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        before[dims - 1 - at], after[dims - 1 - at] = low, high
    x = w.value(call["self"])
    return padded(w, x, before, after, w.number(call["value"], x.dtype))


@rule(aten.slice_backward.default)
def slice_backward(w: Writer, call: Call) -> Value:
    """The gradient of a slice: zeros around it."""
    dim, size = call["dim"] % call.out.dim(), number_of(call.out.shape[call["dim"]])
    start, length = number_of(call["start"]), number_of(call.fake("grad_output").shape[dim])
    if any(type(n) is not int for n in (size, start, length)) or call["step"] != 1:
        raise Refused("symbolic positions, or steps")
    start = min(start + size if start < 0 else start, size)
    before, after = [0] * call.out.dim(), [0] * call.out.dim()
    before[dim], after[dim] = start, size - start - length
    x = w.value(call["grad_output"])
    return padded(w, x, before, after, w.number(0, x.dtype))


@rule(aten.select_backward.default)
def select_backward(w: Writer, call: Call) -> Value:
    """The gradient of one place: zeros around it."""
    dim = call["dim"] % call.out.dim()
    size, index = number_of(call.out.shape[dim]), number_of(call["index"])
    if type(size) is not int or type(index) is not int:
        raise Refused("symbolic positions")
    index %= size
    before, after = [0] * call.out.dim(), [0] * call.out.dim()
    before[dim], after[dim] = index, size - 1 - index
    x = w.value(call["grad_output"])
    x = w.reshaped(x, [*call.out.shape[:dim], 1, *call.out.shape[dim + 1 :]])
    return padded(w, x, before, after, w.number(0, x.dtype))


@rule(aten.slice_scatter.default)
def slice_scatter(w: Writer, call: Call) -> Value:
    """A part of one dimension replaced."""
    x, dims = w.value(call["self"]), call.out.dim()
    dim = call["dim"] % dims
    size = number_of(call.out.shape[dim])
    start, end = (number_of(call[name]) for name in ("start", "end"))
    length = number_of(call.fake("src").shape[dim])
    if any(type(n) is not int for n in (size, length)) or type(start) not in (int, type(None)) or call["step"] != 1:
        raise Refused("symbolic positions, or steps")
    if tuple(call.fake("src").shape[:dim]) != tuple(call.out.shape[:dim]) or type(end) not in (int, type(None)):
        raise Refused("symbolic positions, or a part that is expanded")
    start = start or 0
    start = min(start + size if start < 0 else start, size)
    parts = [w.cast(w.value(call["src"]), x.dtype)]
    if start:
        parts.insert(0, sliced(w, x, dim, 0, start))
    if start + length < size:
        parts.append(sliced(w, x, dim, start + length, size))
    return w.op("Concat", *parts, axis=dim)
