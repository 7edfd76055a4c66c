"""What has several results, or changes shape on the way: gates, dropout, gradients of slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes, of_floats, wide

Maybe = Tensor | None


def _halves(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Two, also where a dimension of size 0 has one part only for ``split``."""
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half), x.narrow(dim, half, half)


@decomposes(aten.glu.default)
@of_floats
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half times the sigmoid of the second."""
    first, second = _halves(wide(x), dim)
    return (first * second.sigmoid()).to(x.dtype)


@decomposes(aten.glu_backward.default)
def glu_backward(grad: Tensor, x: Tensor, dim: int) -> Tensor:
    """The gradients of both halves."""
    first, second = _halves(x, dim)
    gate = second.sigmoid()
    slope = (1 - wide(gate)) * wide(gate) * wide(grad) * wide(first)
    return torch.cat([gate * grad, slope.to(x.dtype)], dim)


@decomposes(aten.ldexp.Tensor)
def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """``x * 2 ** exponent``."""
    return x * torch.pow(2.0, exponent)


@decomposes(aten.log_sigmoid_forward.default)
@of_floats
def log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """``min(x, 0) - log(1 + exp(-|x|))``; the CPU keeps the exponential, both are contiguous; others keep nothing."""
    source = wide(x)
    kept = (-source.abs()).exp()
    result = (source.clamp_max(0) - kept.log1p()).to(x.dtype)
    if x.device.type != "cpu":
        return result, x.new_empty(0)
    return result.contiguous(), kept.to(x.dtype).contiguous()


@decomposes(aten.log_sigmoid_backward.default)
def log_sigmoid_backward(grad: Tensor, x: Tensor, kept: Tensor) -> Tensor:
    """The gradient where the forward keeps nothing; what the CPU keeps has a rule."""
    if x.device.type == "cpu":
        return NotImplemented
    source = wide(x)
    exponential = (-source.abs()).exp()
    ratio = exponential / (1 + exponential)
    return (wide(grad) * torch.where(source < 0, 1 - ratio, ratio)).to(x.dtype)


@decomposes(aten.threshold_backward.default)
def threshold_backward(grad: Tensor, x: Tensor, threshold: Any) -> Tensor:
    """Where the forward let the input pass: a mask of bool may be kept for it, where nobody else needs ``x``.

    On the CPU the threshold of halves is a float32, elsewhere it is one of them.
    """
    source = wide(x) if x.device.type == "cpu" else x
    return torch.where(source <= threshold, 0, grad)


@decomposes(aten._prelu_kernel_backward.default)
def prelu_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of input and weight, elementwise."""
    above = x > 0
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    return torch.where(above, grad, weight * grad), torch.where(above, zero, x * grad)


@decomposes(aten.native_dropout.default)
def native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Result and mask, drawn as the CPU's kernel draws it."""
    if x.device.type != "cpu" or train is False or p in (0, 1) or not x.is_floating_point():
        return NotImplemented
    drawn = torch.empty_like(x, dtype=torch.bool, memory_format=torch.contiguous_format)
    mask = aten.bernoulli.p(drawn, 1 - p)
    return (x * mask).mul(1 / (1 - p)), mask


@decomposes(aten.slice_backward.default)
def slice_backward(grad: Tensor, sizes: Sequence[Any], dim: int, start: Any, end: Any, step: Any) -> Tensor:
    """The slice's gradient among zeros."""
    return aten.slice_scatter(grad.new_zeros(sizes), grad, dim, start, end, step)


@decomposes(aten.select_backward.default)
def select_backward(grad: Tensor, sizes: Sequence[Any], dim: int, index: Any) -> Tensor:
    """The gradient at one index, zeros elsewhere."""
    return aten.select_scatter(grad.new_zeros(sizes), grad, dim, index)
