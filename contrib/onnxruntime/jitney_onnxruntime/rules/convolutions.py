"""Convolutions and pooling."""

from __future__ import annotations

import math
from typing import Any

import torch

from jitney_onnxruntime.rules.operands import one
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer, number_of

aten = torch.ops.aten


def _each(given: Any, dims: int) -> list[int]:
    """A parameter for each dimension of space; constants only."""
    listed = [number_of(n) for n in given]
    if any(type(n) is not int for n in listed):
        raise Refused("symbolic parameters")
    return listed * dims if len(listed) == 1 else listed


@rule(aten.convolution.default)
def convolution(w: Writer, call: Call) -> Value:
    """Of float32, not transposed."""
    source = call.fake("input")
    dims = source.dim() - 2
    if call["transposed"] or dims not in (1, 2, 3):
        raise Refused("transposed")
    padding = _each(call["padding"], dims)
    if min(padding) < 0:
        raise Refused("a negative border")
    bias = None if call["bias"] is None else w.value(call["bias"])
    return w.op(
        "Conv", w.value(call["input"]), w.value(call["weight"]), bias,
        strides=_each(call["stride"], dims), pads=[*padding, *padding], dilations=_each(call["dilation"], dims),
        group=number_of(call["groups"]),
    )  # fmt: skip


def _pooling(call: Call, dims: int) -> dict[str, Any]:
    kernel = _each(call["kernel_size"], dims)
    padding = _each(call["padding"], dims)
    if call["ceil_mode"] or call.fake("self").dim() != dims + 2:
        raise Refused("ceil_mode, or no batch")
    strides = _each(call["stride"], dims) if call["stride"] else kernel
    return {"kernel_shape": kernel, "strides": strides, "pads": [*padding, *padding]}


@rule(aten.max_pool2d_with_indices.default)
def max_pool(w: Writer, call: Call) -> tuple[Value | None, ...]:
    """Without the places.

    ONNX Runtime loses NaN, and takes the smallest finite number where there are only -infinities. So a second pooling
    tells of each window: 2 if it has NaN, 0 if it has nothing above -infinity.
    """
    call.only(0)
    x = w.value(call["self"])
    how = {**_pooling(call, 2), "dilations": _each(call["dilation"], 2)}
    made = w.op("MaxPool", x, **how)
    odd = w.cast(w.op("IsNaN", x, dtype=torch.bool), x.dtype)
    above = w.cast(w.op("Greater", x, one(w, x, -math.inf), dtype=torch.bool), x.dtype)
    kind = w.op("MaxPool", w.op("Add", w.op("Add", odd, odd), above), **how)
    nothing = w.op("Less", kind, one(w, x), dtype=torch.bool)
    made = w.op("Where", nothing, one(w, x, -math.inf), made, on=1)
    return w.op("Where", w.op("Greater", kind, one(w, x), dtype=torch.bool), one(w, x, math.nan), made, on=1), None


@rule(aten.avg_pool2d.default)
def avg_pool(w: Writer, call: Call) -> Value:
    """With the usual divisor."""
    if call["divisor_override"] is not None:
        raise Refused("another divisor")
    pooling = _pooling(call, 2)
    return w.op("AveragePool", w.value(call["self"]), **pooling, count_include_pad=int(call["count_include_pad"]))
