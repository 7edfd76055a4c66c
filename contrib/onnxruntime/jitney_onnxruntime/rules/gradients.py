"""What autograd's formulas call."""

from __future__ import annotations

import math

import torch

from jitney_onnxruntime.dtypes import FULL
from jitney_onnxruntime.rules.operands import finished, one, operands
from jitney_onnxruntime.rules.pointwise import one_plus_exp
from jitney_onnxruntime.rules.reductions import summed
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer

aten = torch.ops.aten


def _given(w: Writer, call: Call, *names: str) -> list[Value]:
    """Arguments of float32 or float64; eager rounds half types in between."""
    if call.out.dtype not in FULL or any(call.fake(name).dtype is not call.out.dtype for name in names):
        raise Refused("not of float32 or float64")
    return operands(w, call, *names, common=call.out.dtype)


@rule(aten.tanh_backward.default)
def tanh_backward(w: Writer, call: Call) -> Value:
    """grad * (1 - y * y)."""
    grad, y = _given(w, call, "grad_output", "output")
    return w.op("Mul", grad, w.op("Sub", one(w, y), w.op("Mul", y, y)))


@rule(aten.sigmoid_backward.default)
def sigmoid_backward(w: Writer, call: Call) -> Value:
    """grad * (1 - y) * y."""
    grad, y = _given(w, call, "grad_output", "output")
    return w.op("Mul", w.op("Mul", grad, w.op("Sub", one(w, y), y)), y)


@rule(aten.silu_backward.default)
def silu_backward(w: Writer, call: Call) -> Value:
    """grad * s * (1 + x * (1 - s)) with s = sigmoid(x)."""
    grad, x = _given(w, call, "grad_output", "self")
    s = w.op("Reciprocal", one_plus_exp(w, x))
    inner = w.op("Add", one(w, x), w.op("Mul", x, w.op("Sub", one(w, x), s)))
    return w.op("Mul", w.op("Mul", grad, s), inner)


@rule(aten.threshold_backward.default)
def threshold_backward(w: Writer, call: Call) -> Value:
    """The gradient where x is above the threshold, or NaN, as in eager's kernel."""
    grad, x = operands(w, call, "grad_output", "self", common=call.out.dtype)
    below = w.op("LessOrEqual", x, w.number(call["threshold"], x.dtype), dtype=torch.bool)
    return finished(w, call, w.op("Where", below, w.number(0, grad.dtype), grad, on=1))


@rule(aten.gelu_backward.default)
def gelu_backward(w: Writer, call: Call) -> Value:
    """Both approximations."""
    grad, x = _given(w, call, "grad_output", "self")
    half, unit = one(w, x, 0.5), one(w, x)
    if call["approximate"] == "none":
        below = w.op("Mul", half, w.op("Add", unit, w.op("Erf", w.op("Mul", x, one(w, x, math.sqrt(0.5))))))
        density = w.op("Exp", w.op("Mul", w.op("Mul", x, x), one(w, x, -0.5)))
        density = w.op("Mul", density, one(w, x, 1 / math.sqrt(2 * math.pi)))
        return w.op("Mul", grad, w.op("Add", below, w.op("Mul", x, density)))
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    square = w.op("Mul", x, x)
    inner = w.op("Add", x, w.op("Mul", one(w, x, kappa), w.op("Mul", square, x)))
    bent = w.op("Tanh", w.op("Mul", one(w, x, beta), inner))
    left, right = w.op("Mul", half, x), w.op("Add", unit, bent)
    slope = w.op("Add", unit, w.op("Mul", one(w, x, 3 * kappa), square))
    slope = w.op("Mul", w.op("Sub", unit, w.op("Mul", bent, bent)), w.op("Mul", one(w, x, beta), slope))
    return w.op("Mul", grad, w.op("Add", w.op("Mul", half, right), w.op("Mul", left, slope)))


@rule(aten._softmax_backward_data.default)
def softmax_backward(w: Writer, call: Call) -> Value:
    """(grad - sum(grad * y)) * y."""
    grad, y = _given(w, call, "grad_output", "output")
    dim = call["dim"] % max(call.out.dim(), 1)
    total = summed(w, w.op("Mul", grad, y), call.out.shape, [dim] if call.out.dim() else [], True)
    return w.op("Mul", w.op("Sub", grad, total), y)


@rule(aten._log_softmax_backward_data.default)
def log_softmax_backward(w: Writer, call: Call) -> Value:
    """grad - exp(y) * sum(grad)."""
    grad, y = _given(w, call, "grad_output", "output")
    dim = call["dim"] % max(call.out.dim(), 1)
    total = summed(w, grad, call.out.shape, [dim] if call.out.dim() else [], True)
    return w.op("Sub", grad, w.op("Mul", w.op("Exp", y), total))
