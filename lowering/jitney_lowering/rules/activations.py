"""Activation functions and their gradients, element by element, in the formulas of eager's kernels."""

from __future__ import annotations

import math

import torch

from jitney_lowering.ir.scalar import (
    Number,
    Scalar,
    exp,
    expm1,
    is_nan,
    log,
    log1p,
    maximum,
    minimum,
    one,
    sigmoid,
    tanh,
    where,
)
from jitney_lowering.rules.pointwise import BOOLS, EXACT, pointwise

aten = torch.ops.aten
GELU_BETA = math.sqrt(2) * (2 / math.sqrt(math.pi)) * 0.5
GELU_KAPPA = 0.044715


@pointwise(aten.relu.default, refused=BOOLS)
def relu(x: Scalar) -> Scalar:
    """``max(x, 0)``; a zero keeps its sign."""
    return maximum(0, x)


@pointwise(aten.threshold.default, refused=BOOLS)
def threshold(x: Scalar, limit: Number, value: Number) -> Scalar:
    """``value`` up to the limit."""
    return where(x <= limit, value, x)


@pointwise(aten.threshold_backward.default)
def threshold_backward(grad: Scalar, x: Scalar, limit: Number) -> Scalar:
    """Nothing up to the limit."""
    return where(x <= limit, 0, grad)


@pointwise(aten.sigmoid.default)
def sigmoid_(x: Scalar) -> Scalar:
    """The logistic function."""
    return sigmoid(x)


@pointwise(aten.sigmoid_backward.default, cuda="stepwise")
def sigmoid_backward(grad: Scalar, y: Scalar) -> Scalar:
    """From the result."""
    return grad * (1 - y) * y


@pointwise(aten.tanh_backward.default, cuda="stepwise")
def tanh_backward(grad: Scalar, y: Scalar) -> Scalar:
    """From the result."""
    return grad * (1 - y * y)


@pointwise(aten.silu.default)
def silu(x: Scalar) -> Scalar:
    """``x * sigmoid(x)``."""
    return x / (1 + exp(-x))


@pointwise(aten.silu_backward.default)
def silu_backward(grad: Scalar, x: Scalar) -> Scalar:
    """The gradient."""
    s = sigmoid(x)
    return grad * s * (1 + x * (1 - s))


@pointwise(aten.gelu.default)
def gelu(x: Scalar, approximate: str) -> Scalar:
    """x times the normal distribution's function at x."""
    if approximate == "tanh":
        return 0.5 * x * (1 + tanh(GELU_BETA * (x + GELU_KAPPA * (x * x * x))))
    return x * 0.5 * (1 + one("erf", x * math.sqrt(0.5)))


@pointwise(aten.gelu_backward.default)
def gelu_backward(grad: Scalar, x: Scalar, approximate: str) -> Scalar:
    """The gradient."""
    if approximate == "tanh":
        square = x * x
        t = tanh(GELU_BETA * (x + GELU_KAPPA * (square * x)))
        left = 0.5 * (1 + t)
        right = 0.5 * x * (1 - t * t) * (GELU_BETA * (1 + 3 * GELU_KAPPA * square))
        return grad * (left + right)
    distribution = 0.5 * (1 + one("erf", x * math.sqrt(0.5)))
    density = exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return grad * (distribution + x * density)


@pointwise(aten.mish.default)
def mish(x: Scalar) -> Scalar:
    """``x * tanh(log(1 + exp(x)))``."""
    return x * tanh(log1p(exp(x)))


@pointwise(aten.mish_backward.default)
def mish_backward(grad: Scalar, x: Scalar) -> Scalar:
    """The gradient."""
    t = tanh(log1p(exp(x)))
    return grad * (t + x * sigmoid(x) * (1 - t * t))


@pointwise(aten.softplus.default)
def softplus(x: Scalar, beta: Number, limit: Number) -> Scalar:
    """``log(1 + exp(beta * x)) / beta``; x itself above the limit."""
    return where(x * beta > limit, x, log1p(exp(x * beta)) / beta)


@pointwise(aten.softplus_backward.default)
def softplus_backward(grad: Scalar, x: Scalar, beta: Number, limit: Number) -> Scalar:
    """The gradient."""
    z = exp(x * beta)
    return where(x * beta > limit, grad, grad * z / (z + 1))


@pointwise(aten.elu.default, refused=EXACT)
def elu(x: Scalar, alpha: Number, scale: Number, input_scale: Number) -> Scalar:
    """Linear above 0, exponential below."""
    return where(x < 0, expm1(x * input_scale) * (alpha * scale), x * scale)


@pointwise(aten.elu_backward.default)
def elu_backward(grad: Scalar, alpha: Number, scale: Number, input_scale: Number, is_result: bool, x: Scalar) -> Scalar:
    """The gradient, from the input or from the result."""
    negative = alpha * scale
    below = grad * input_scale * (x + negative) if is_result else grad * input_scale * negative * exp(x * input_scale)
    return where(x > 0, grad * scale, below)  # the other way round for nan


@pointwise(aten.leaky_relu.default)
def leaky_relu(x: Scalar, slope: Number) -> Scalar:
    """x above 0, less below."""
    return where(x > 0, x, x * slope)


@pointwise(aten.leaky_relu_backward.default)
def leaky_relu_backward(grad: Scalar, x: Scalar, slope: Number, is_result: bool) -> Scalar:
    """The gradient."""
    return where(x > 0, grad, grad * slope)


@pointwise(aten._prelu_kernel.default, refused=EXACT)
def prelu(x: Scalar, weight: Scalar) -> Scalar:
    """x above 0, ``weight * x`` below."""
    return where(x > 0, x, weight * x)


@pointwise(aten.hardtanh_backward.default)
def hardtanh_backward(grad: Scalar, x: Scalar, low: Number, high: Number) -> Scalar:
    """The gradient: nothing outside of the limits."""
    return where((x > low) & (x < high), grad, 0)


@pointwise(aten.hardsigmoid.default)
def hardsigmoid(x: Scalar) -> Scalar:
    """``clamp(x + 3, 0, 6) / 6``."""
    return minimum(maximum(x + 3, 0), 6) / 6


@pointwise(aten.hardsigmoid_backward.default)
def hardsigmoid_backward(grad: Scalar, x: Scalar) -> Scalar:
    """The gradient."""
    return where((x > -3) & (x < 3), grad * (1 / 6), 0)


@pointwise(aten.hardswish.default, refused=EXACT)
def hardswish(x: Scalar) -> Scalar:
    """``x * hardsigmoid(x)``."""
    return x * minimum(maximum(x + 3, 0), 6) / 6


@pointwise(aten.hardswish_backward.default)
def hardswish_backward(grad: Scalar, x: Scalar) -> Scalar:
    """The gradient."""
    return where(x <= -3, 0, where(x >= 3, grad, grad * (x / 3 + 0.5)))


@pointwise(aten.hardshrink.default, mode="stepwise", refused=EXACT)
def hardshrink(x: Scalar, limit: Number) -> Scalar:
    """0 within the limit."""
    return where((x >= -limit) & (x <= limit), 0, x)


@pointwise(aten.hardshrink_backward.default, aten.softshrink_backward.default, mode="stepwise")
def shrink_backward(grad: Scalar, x: Scalar, limit: Number) -> Scalar:
    """The gradient: nothing within the limit."""
    return where((x < -limit) | (x > limit), grad, 0)


@pointwise(aten.softshrink.default)
def softshrink(x: Scalar, limit: Number) -> Scalar:
    """Nearer to 0 by the limit."""
    return where(is_nan(x), x, where(x > limit, x - limit, where(x < -limit, x + limit, x.like(0.0))))


@pointwise(aten.log_sigmoid_backward.default)
def log_sigmoid_backward(grad: Scalar, x: Scalar, kept: Scalar) -> Scalar:
    """The gradient, from ``exp(-|x|)``, which the forward keeps."""
    below = x < 0
    ratio = kept / (1 + kept)
    return grad * where(below, 1 - ratio, ratio)


@pointwise(aten.logit.default, mode="stepwise", cuda="arithmetic")
def logit(x: Scalar, eps: float | None) -> Scalar:
    """``log(x / (1 - x))``."""
    if eps is not None:
        x = where(x < eps, eps, where(x > 1 - eps, 1 - eps, x))
    return log(x / (1 - x))


@pointwise(aten.logit_backward.default, mode="stepwise", cuda="arithmetic")
def logit_backward(grad: Scalar, x: Scalar, eps: float | None) -> Scalar:
    """The gradient."""
    slope = grad / (x * (1 - x))
    if eps is None:
        return where((x < 0) | (x > 1), math.nan, slope)
    return where((x >= eps) & (x <= 1 - eps), slope, 0)


@pointwise(aten.native_dropout_backward.default, own=(1,))
def native_dropout_backward(grad: Scalar, mask: Scalar, scale: float) -> Scalar:
    """Nothing where the element was dropped."""
    return grad * mask.to(grad.dtype) * scale
