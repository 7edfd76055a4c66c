"""Variances and normalisations, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, count, decomposes, is_empty, wide, wide_or_none
from jitney_lowering.ir.operations import HALVES

Maybe = Tensor | None


# --- variance -------------------------------------------------------------------------------------------------------


def moments(x: Tensor, dims: list[int], correction: float = 0) -> tuple[Tensor, Tensor]:
    """Variance and mean, with the dimensions kept as size 1."""
    mean = x.sum(dims, keepdim=True) / count(x, dims)
    squares = (x - mean) * (x - mean)
    return squares.sum(dims, keepdim=True) / _freedom(count(x, dims), correction), mean


def _freedom(number: Any, correction: float) -> Any:
    """The number to divide by: never below 0, where eager gives nan or inf."""
    if isinstance(number, int):
        return max(0, number - correction)
    if correction > 2:  # a symbolic size is at least 2
        return None
    return number - (int(correction) if correction == int(correction) else correction)


def _variance(x: Tensor, dim: Any, correction: Any, keepdim: bool) -> tuple[Tensor, Tensor, Any] | None:
    """Variance, mean, and of how many elements."""
    dims = list(range(x.dim())) if dim is None or (not isinstance(dim, int) and not len(dim)) else dim
    dims = sorted({d % max(x.dim(), 1) for d in ([dims] if isinstance(dims, int) else dims)}) if x.dim() else []
    correction = 1 if correction is None else correction
    if not x.is_floating_point() or not x.dim() or is_empty(x) or _freedom(count(x, dims), correction) is None:
        return None
    variance, mean = moments(wide(x), dims, correction)
    if not keepdim:
        variance, mean = variance.squeeze(dims), mean.squeeze(dims)
    return variance, mean, count(x, dims)


@decomposes(aten.var.correction)
def var(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    """The mean squared distance from the mean."""
    found = _variance(x, dim, correction, keepdim)
    return NotImplemented if found is None else found[0].to(x.dtype)


@decomposes(aten.std.correction)
def std(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    """The variance's square root."""
    found = _variance(x, dim, correction, keepdim)
    return NotImplemented if found is None else found[0].sqrt().to(x.dtype)


@decomposes(aten.var_mean.correction)
def var_mean(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """Variance and mean.

    Eager's mean is a running one: after an infinite element, the next one makes it NaN.
    """
    found = _variance(x, dim, correction, keepdim)
    if found is None:
        return NotImplemented
    variance, mean, number = found
    if not isinstance(number, int) or number > 1:
        mean = torch.where(mean.isinf(), math.nan, mean)
    return variance.to(x.dtype), mean.to(x.dtype)


# --- layer norm -----------------------------------------------------------------------------------------------------


@decomposes(aten.native_layer_norm.default)
def layer_norm(x: Tensor, shape: Sequence[Any], weight: Maybe, bias: Maybe, eps: float) -> Any:
    """``(x - mean) / sqrt(var + eps) * weight + bias``, mean and ``1 / sqrt``."""
    if is_empty(x):
        return NotImplemented
    dims = list(range(x.dim() - len(shape), x.dim()))
    source = wide(x).contiguous()
    variance, mean = moments(source, dims)
    rstd = (variance + eps).rsqrt()
    result = (source - mean) * rstd
    if weight is not None:
        result = result * wide(weight)
    if bias is not None:
        result = result + wide(bias)
    kept = _kept_dtype(x, weight, bias)
    return result.to(x.dtype), mean.to(kept), rstd.to(kept)


def _kept_dtype(x: Tensor, *parameters: Maybe) -> torch.dtype:
    """Eager keeps statistics in the parameters' dtype on the CPU, and as exact as they were computed elsewhere."""
    if x.device.type != "cpu":
        return torch.float32 if x.dtype in HALVES else x.dtype
    return parameter_dtype(x, *parameters)


def parameter_dtype(x: Tensor, *parameters: Maybe) -> torch.dtype:
    """The parameters' dtype; the input's where there are none."""
    return next((p.dtype for p in parameters if p is not None), x.dtype)


@decomposes(aten.native_layer_norm_backward.default)
def layer_norm_backward(
    grad: Tensor, x: Tensor, shape: Sequence[Any], mean: Tensor, rstd: Tensor, weight: Maybe, bias: Maybe,
    output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    """The gradients of input, weight and bias."""
    if is_empty(x):
        return NotImplemented
    inner = list(range(x.dim() - len(shape), x.dim()))
    outer = list(range(x.dim() - len(shape)))
    g, source, mean, rstd = wide(grad), wide(x), wide(mean), wide(rstd)
    normal = (source - mean) * rstd
    grad_x = grad_weight = grad_bias = None
    if output_mask[0]:
        scaled = g if weight is None else g * wide(weight)
        number = count(x, inner)
        first = scaled.sum(inner, keepdim=True) / number
        second = (scaled * normal).sum(inner, keepdim=True) / number
        grad_x = ((scaled - first - normal * second) * rstd).to(x.dtype).contiguous()
    if output_mask[1] and weight is not None:
        product = g * normal
        grad_weight = (product.sum(outer) if outer else product).to(weight.dtype)
    if output_mask[2] and bias is not None:
        grad_bias = (g.sum(outer) if outer else g.clone()).to(bias.dtype)
    return grad_x, grad_weight, grad_bias


# --- batch norm -----------------------------------------------------------------------------------------------------


def per_channel(x: Tensor, statistic: Tensor) -> Tensor:
    """A number for each channel, in as many dimensions as ``x``."""
    return statistic.view([1, -1] + [1] * (x.dim() - 2))


def _channel_dims(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _added_up(x: Tensor, dims: list[int]) -> Tensor:
    """The sum, on CPUs in double precision as eager's kernels: what is left of a gradient may be little of it."""
    return x.sum(dims, dtype=torch.float64 if x.device.type == "cpu" else None)


def _normalised(x: Tensor, mean: Tensor, rstd: Tensor, weight: Maybe, bias: Maybe) -> Tensor:
    """As eager does it: on the CPU with one factor and one summand for each channel."""
    if x.device.type != "cpu":
        result = wide(x) - per_channel(x, mean)
        result = (result if weight is None else per_channel(x, wide(weight)) * result) * per_channel(x, rstd)
        return (result if bias is None else result + per_channel(x, wide(bias))).to(x.dtype)
    factor = rstd if weight is None else rstd * wide(weight)
    summand = -mean * factor if bias is None else wide(bias) - mean * factor
    return (wide(x) * per_channel(x, factor) + per_channel(x, summand)).to(x.dtype)


def _trained(
    x: Tensor, weight: Maybe, bias: Maybe, eps: float, kept: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    source, dims = wide(x), _channel_dims(x)
    number = count(x, dims)
    mean = (_added_up(source, dims) / number).to(source.dtype)
    centred = source - per_channel(x, mean)
    variance = (_added_up(centred * centred, dims) / number).to(source.dtype)
    rstd = (variance + eps).rsqrt()
    rounded = wide(mean.to(kept)), wide(rstd.to(kept))  # as eager keeps them, and uses them
    return _normalised(x, *rounded, weight, bias), mean, variance, rstd


def _moved(running: Tensor, new: Tensor, momentum: float) -> Tensor:
    return (momentum * new + (1 - momentum) * wide(running)).to(running.dtype)


def _batch_norm(
    x: Tensor, weight: Maybe, bias: Maybe, mean: Maybe, variance: Maybe, training: bool, momentum: float, eps: float
) -> Any:
    """Result, kept mean and ``1 / sqrt``, new running mean and variance."""
    kept = _kept_dtype(x, weight, bias, mean, variance)
    if not training:
        assert mean is not None and variance is not None
        rstd = 1 / (wide(variance) + eps).sqrt()
        result = _laid_out(x, _normalised(x, wide(mean), rstd, weight, bias))
        if x.device.type != "cpu":  # whose kernel gives what it was made with
            return result, wide(mean).clone(), rstd, mean, variance
        nothing = x.new_empty((0,), dtype=kept)
        return result, nothing, nothing.clone(), mean, variance
    result, batch_mean, batch_variance, rstd = _trained(x, weight, bias, eps, kept)
    new_mean, new_variance = mean, variance
    if mean is not None:
        new_mean = _moved(mean, batch_mean, momentum)
    if variance is not None:
        number = count(x, _channel_dims(x))
        new_variance = _moved(variance, batch_variance * number / (number - 1), momentum)
    return _laid_out(x, result), batch_mean.to(kept), rstd.to(kept), new_mean, new_variance


def _laid_out(x: Tensor, result: Tensor) -> Tensor:
    """The CPU's batch norm knows three memory formats, and gives what comes in no other as contiguous."""
    formats = [torch.contiguous_format]
    formats += {4: [torch.channels_last], 5: [torch.channels_last_3d]}.get(x.dim(), [])
    known = x.device.type != "cpu" or any(x.is_contiguous(memory_format=f) for f in formats)
    return result if known else result.contiguous()


def _fits(x: Tensor, training: bool = True) -> bool:
    """Not where a single value for each channel has no variance: eager's warning or error is its own."""
    number = count(x, _channel_dims(x)) if x.dim() > 1 else 1
    return x.dim() > 1 and not is_empty(x) and not (training and isinstance(number, int) and number < 2)


@decomposes(aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    x: Tensor, weight: Maybe, bias: Maybe, mean: Tensor, variance: Tensor, training: bool, momentum: float, eps: float
) -> Any:
    """Batch norm that returns the new running statistics."""
    if not _fits(x, training):
        return NotImplemented
    *results, new_mean, new_variance = _batch_norm(x, weight, bias, mean, variance, training, momentum, eps)
    return (*results, *(new if new is not old else old.clone() for new, old in
                        ((new_mean, mean), (new_variance, variance))))  # fmt: skip


@decomposes(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(x: Tensor, weight: Maybe, bias: Maybe, training: bool, momentum: float, eps: float) -> Any:
    """Batch norm without running statistics."""
    if not _fits(x):
        return NotImplemented
    return _batch_norm(x, weight, bias, None, None, True, momentum, eps)[:3]


@decomposes(aten._native_batch_norm_legit_no_training.default)
def batch_norm_no_training(
    x: Tensor, weight: Maybe, bias: Maybe, mean: Tensor, variance: Tensor, momentum: float, eps: float
) -> Any:
    """Batch norm by the running statistics."""
    if not _fits(x, False):
        return NotImplemented
    return _batch_norm(x, weight, bias, mean, variance, False, momentum, eps)[:3]


@decomposes(aten.native_batch_norm.default)
def native_batch_norm(
    x: Tensor, weight: Maybe, bias: Maybe, mean: Maybe, variance: Maybe, training: bool, momentum: float, eps: float
) -> Any:
    """Batch norm, if no running statistics are to be written to."""
    if not _fits(x, training) or (training and mean is not None):
        return NotImplemented
    return _batch_norm(x, weight, bias, mean, variance, training, momentum, eps)[:3]


@decomposes(aten.cudnn_batch_norm.default)
def cudnn_batch_norm(
    x: Tensor, weight: Tensor, bias: Maybe, mean: Maybe, variance: Maybe, training: bool, momentum: float, eps: float
) -> Any:
    """cuDNN's batch norm by the running statistics; in training it stays cuDNN's, which reads its input once."""
    if training or not _fits(x, False):
        return NotImplemented
    result, *_ = _batch_norm(x, weight, bias, mean, variance, False, momentum, eps)
    nothing = x.new_empty((0,), dtype=_kept_dtype(x, weight, bias, mean, variance))
    return result, nothing, nothing.clone(), x.new_empty((0,), dtype=torch.uint8)


@decomposes(aten.native_batch_norm_backward.default)
def batch_norm_backward(
    grad: Tensor, x: Tensor, weight: Maybe, running_mean: Maybe, running_var: Maybe, mean: Maybe, rstd: Maybe,
    train: bool, eps: float, output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    """The gradients of input, weight and bias."""
    if not _fits(x, train) or (train and (mean is None or rstd is None)):
        return NotImplemented
    if not train:
        assert running_mean is not None and running_var is not None
        mean, rstd = running_mean, 1 / (wide(running_var) + eps).sqrt()
    assert mean is not None and rstd is not None
    g, source, mean, rstd = wide(grad), wide(x), wide(mean), wide(rstd)
    dims = _channel_dims(x)
    centred = source - per_channel(x, mean)
    total, product = _added_up(g, dims), _added_up(g * centred, dims)
    grad_x = grad_weight = grad_bias = None
    if output_mask[0]:
        factor = rstd if weight is None else rstd * wide(weight)
        inner = g
        if train:
            number = count(x, dims)
            slope = (product * rstd * rstd / number).to(g.dtype)
            inner = g - per_channel(x, (total / number).to(g.dtype)) - centred * per_channel(x, slope)
        grad_x = (inner * per_channel(x, factor)).to(x.dtype)
    kept = parameter_dtype(x, weight)
    if output_mask[1]:
        grad_weight = (product * rstd).to(kept)
    if output_mask[2]:
        grad_bias = total.to(kept)
    return grad_x, grad_weight, grad_bias


# --- rms norm -------------------------------------------------------------------------------------------------------


@decomposes(aten._fused_rms_norm.default)
def rms_norm(x: Tensor, shape: Sequence[Any], weight: Maybe, eps: float | None) -> Any:
    """``x / sqrt(mean(x * x) + eps) * weight``, and ``1 / sqrt``. CUDA's kernel gives contiguous results."""
    if is_empty(x):
        return NotImplemented
    dims = list(range(x.dim() - len(shape), x.dim()))
    source = wide(x)
    mean = (source * source).sum(dims, keepdim=True) / count(x, dims)
    rstd = (mean + (torch.finfo(source.dtype).eps if eps is None else eps)).rsqrt()
    result = source * rstd
    scale = wide_or_none(weight)
    result = (result if scale is None else result * scale).to(x.dtype)
    return (result, rstd) if x.device.type == "cpu" else (result.contiguous(), rstd.contiguous())


@decomposes(aten._fused_rms_norm_backward.default)
def rms_norm_backward(
    grad: Tensor, x: Tensor, shape: Sequence[Any], rstd: Tensor, weight: Maybe, output_mask: Sequence[bool]
) -> Any:
    """Gradients with regard to input and weight; ``rstd`` is what the forward gives besides its result."""
    if is_empty(x):
        return NotImplemented
    outer = x.dim() - len(shape)
    inner = list(range(outer, x.dim()))
    g, normal, scale = wide(grad), wide(x) * rstd, wide_or_none(weight)
    grad_x = grad_weight = None
    if output_mask[0]:
        slope = g if scale is None else g * scale
        total = (slope * normal).sum(inner, keepdim=True)
        grad_x = ((slope - normal * (total / count(x, inner))) * rstd).to(x.dtype).contiguous()
    if output_mask[1] and weight is not None:
        product = g * normal
        grad_weight = (product.sum(list(range(outer))) if outer else product).to(weight.dtype).contiguous()
    return grad_x, grad_weight
