"""Softmax and normalization."""

from __future__ import annotations

import math

import torch

from jitney_onnxruntime.dtypes import HALF
from jitney_onnxruntime.rules.operands import finished, one, wide
from jitney_onnxruntime.rules.reductions import reduced, summed
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer, number_of

aten = torch.ops.aten


def _softmax(kind: str, w: Writer, call: Call) -> Value:
    x = wide(w, call, "self", call.out.dtype)
    if not call.out.dim():
        raise Refused("of a number")
    return w.op(kind, x, axis=call["dim"] % call.out.dim())


@rule(aten._softmax.default)
def softmax(w: Writer, call: Call) -> Value:
    """Half types compute in float32, or are widened first."""
    return finished(w, call, _softmax("Softmax", w, call))


@rule(aten._log_softmax.default)
def log_softmax(w: Writer, call: Call) -> Value:
    """Of float32 and half types."""
    return finished(w, call, _softmax("LogSoftmax", w, call))


@rule(aten._safe_softmax.default)
def safe_softmax(w: Writer, call: Call) -> Value:
    """0 where all is masked."""
    if call["dtype"] is not None and call["dtype"] is not call.fake("self").dtype:
        raise Refused("with another dtype")
    made = _softmax("Softmax", w, call)
    return finished(w, call, unmasked(w, made, wide(w, call, "self"), call["dim"] % call.out.dim()))


def unmasked(w: Writer, shares: Value, scores: Value, dim: int) -> Value:
    """A softmax with 0 for the rows of which every score is -infinity."""
    largest = reduced(w, "ReduceMax", scores, [dim], True)
    masked = w.op("Equal", largest, one(w, scores, -math.inf), dtype=torch.bool)
    odd = reduced(w, "ReduceMax", w.op("IsNaN", scores, dtype=torch.bool), [dim], True)
    return w.op("Where", w.op("And", masked, w.op("Not", odd)), one(w, shares, 0.0), shares, on=1)


@rule(aten.native_layer_norm.default)
def layer_norm(w: Writer, call: Call) -> tuple[Value | None, ...]:
    """Over the last dimensions, in float32."""
    source, count = call.fake("input"), len(call["normalized_shape"])
    if source.dtype in HALF:
        call.only(0)
    if any(call[name] is not None and call.fake(name).dtype is not source.dtype for name in ("weight", "bias")):
        raise Refused("of several dtypes")
    x = wide(w, call, "input")
    if call["weight"] is None:
        scale = w.filled(one(w, x), call["normalized_shape"])
    else:
        scale = wide(w, call, "weight")
    shift = None if call["bias"] is None else wide(w, call, "bias")
    outputs = [x.dtype] * 3
    made, mean, scatter = w.several(
        "LayerNormalization", [x, scale, shift], outputs, axis=-count, epsilon=float(call["eps"])
    )
    return w.cast(made, source.dtype), w.cast(mean, call.out[1].dtype), w.cast(scatter, call.out[2].dtype)


@rule(aten.native_layer_norm_backward.default)
def layer_norm_backward(w: Writer, call: Call) -> tuple[Value | None, ...]:
    """Of the input, the weight and the bias, those that are asked for."""
    source, count = call.fake("input"), len(call["normalized_shape"])
    names = [name for name in ("grad_out", "input", "mean", "rstd", "weight") if call[name] is not None]
    if any(call.fake(name).dtype is not torch.float32 for name in names):
        raise Refused("not of float32")
    grad, x, mean, scatter = (w.value(call[name]) for name in names[:4])
    inner = list(range(source.dim() - count, source.dim()))
    outer = list(range(source.dim() - count))
    left = w.op("Mul", w.op("Sub", x, mean), scatter)
    of_input = of_weight = of_bias = None
    wanted = call["output_mask"]
    if wanted[0]:
        scaled = grad if call["weight"] is None else w.op("Mul", grad, w.value(call["weight"]))
        size = one(w, x, float(math.prod(number_of(n) for n in source.shape[source.dim() - count :])))
        middle = w.op("Div", summed(w, scaled, source.shape, inner, True), size)
        slope = w.op("Div", summed(w, w.op("Mul", scaled, left), source.shape, inner, True), size)
        of_input = w.op("Mul", w.op("Sub", w.op("Sub", scaled, middle), w.op("Mul", left, slope)), scatter)
    if wanted[1]:
        of_weight = summed(w, w.op("Mul", grad, left), source.shape, outer, False)
    if wanted[2]:
        of_bias = summed(w, grad, source.shape, outer, False)
    return of_input, of_weight, of_bias


@rule(aten.native_group_norm.default)
def group_norm(w: Writer, call: Call) -> tuple[Value | None, ...]:
    """Each group as a row of a layer norm; then the channels' factors."""
    call.only(0)
    source = call.fake("input")
    names = [name for name in ("input", "weight", "bias") if call[name] is not None]
    if any(call.fake(name).dtype is not torch.float32 for name in names):
        raise Refused("not of float32")
    sizes = [number_of(n) for n in source.shape[1:]]
    if any(type(n) is not int for n in sizes):
        raise Refused("of symbolic sizes")
    groups = call["group"]
    length = math.prod(sizes) // groups
    rows = w.reshaped(w.value(call["input"]), [source.shape[0], groups, length])
    ones = w.filled(one(w, rows), [length])
    (made,) = w.several("LayerNormalization", [rows, ones], [rows.dtype], axis=-1, epsilon=float(call["eps"]))
    made = w.reshaped(made, source.shape)
    for name, kind in (("weight", "Mul"), ("bias", "Add")):
        if call[name] is not None:
            made = w.op(kind, made, w.reshaped(w.value(call[name]), [-1, *[1] * (source.dim() - 2)]))
    return made, None, None


@rule(aten.native_batch_norm.default, aten._native_batch_norm_legit_no_training.default)
def batch_norm(w: Writer, call: Call) -> tuple[Value | None, ...]:
    """With the statistics of training before; eager folds them into one product and one sum."""
    call.only(0)
    if call.arguments.get("training") or call["running_mean"] is None or call["running_var"] is None:
        raise Refused("with statistics of its own")
    source = call.fake("input")
    names = ("input", "weight", "bias", "running_mean", "running_var")
    if any(call[name] is not None and call.fake(name).dtype is not torch.float32 for name in names):
        raise Refused("not of float32")
    x, mean, variance = (w.value(call[name]) for name in ("input", "running_mean", "running_var"))
    scale = w.op("Reciprocal", w.op("Sqrt", w.op("Add", variance, one(w, x, call["eps"]))))
    if call["weight"] is not None:
        scale = w.op("Mul", scale, w.value(call["weight"]))
    shift = w.op("Mul", mean, scale)
    if call["bias"] is not None:
        shift = w.op("Sub", w.value(call["bias"]), shift)
    else:
        shift = w.op("Neg", shift)
    sizes = [-1, *[1] * (source.dim() - 2)]
    scale, shift = w.reshaped(scale, sizes), w.reshaped(shift, sizes)
    made = w.op("Add", w.op("Mul", x, scale), shift)
    return made, None, None
