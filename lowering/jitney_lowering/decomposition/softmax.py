"""Softmax and its relatives."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes, is_empty, of_floats, wide
from jitney_lowering.ir.operations import HALVES


@decomposes(aten._softmax.default)
@of_floats
def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """``exp(x - max) / sum``."""
    source = wide(x).contiguous()
    shifted = source if is_empty(x) else source - source.amax(dim, keepdim=True)
    exponentials = shifted.exp()
    result = exponentials / exponentials.sum(dim, keepdim=True)
    return result if half_to_float else result.to(x.dtype)


@decomposes(aten._log_softmax.default)
@of_floats
def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """``x - max - log(sum(exp(x - max)))``."""
    source = wide(x).contiguous()
    shifted = source if is_empty(x) else source - source.amax(dim, keepdim=True)
    total = shifted.exp().sum(dim, keepdim=True)
    rows = dim % max(x.dim(), 1) == x.dim() - 1
    if x.dtype in HALVES and rows and x.device.type == "cpu":  # whose kernel for rows rounds on its way
        total = total.to(x.dtype)
    result = shifted - total.log()
    return result if half_to_float else result.to(x.dtype)


@decomposes(aten._softmax_backward_data.default)
def softmax_backward(grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """``(grad - sum(grad * y)) * y``."""
    if grad.device.type != "cpu":  # where the product is rounded first
        product, y = wide((grad * output).contiguous()), wide(output).contiguous()
        return (product - y * product.sum(dim, keepdim=True)).to(input_dtype)
    g, y = wide(grad).contiguous(), wide(output).contiguous()
    return ((g - (g * y).sum(dim, keepdim=True)) * y).to(input_dtype)


@decomposes(aten._log_softmax_backward_data.default)
def log_softmax_backward(grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """``grad - exp(y) * sum(grad)``."""
    g, y = wide(grad).contiguous(), wide(output).contiguous()
    return (g - y.exp() * g.sum(dim, keepdim=True)).to(input_dtype)


@decomposes(aten.logsumexp.default)
def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(x)))``, shifted by the greatest."""
    if is_empty(x) or not x.is_floating_point():
        return NotImplemented
    dims = [dim] if isinstance(dim, int) else list(dim)
    source = x  # halves are rounded after each step
    greatest = source.amax(dims, keepdim=True)
    greatest = torch.where(greatest.abs() == math.inf, torch.zeros_like(greatest), greatest)
    total = (source - greatest).exp().sum(dims, keepdim=True).log() + greatest
    if not keepdim:
        total = total.squeeze(dims) if dims or not x.dim() else total.reshape(())
    return total
