"""Losses and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes, reduced, wide

Maybe = Tensor | None


@decomposes(aten.mse_loss.default)
def mse_loss(x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """The squared difference."""
    difference = x - target
    return reduced(difference * difference, reduction)


@decomposes(aten.smooth_l1_loss.default)
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    """Squared near 0, absolute elsewhere."""
    if not x.is_floating_point() or x.dtype != target.dtype:
        return NotImplemented
    distance = (wide(x) - wide(target)).abs()
    loss = distance
    if beta:
        loss = torch.where(distance < beta, 0.5 * distance * distance / beta, distance - 0.5 * beta)
    return reduced(loss.to(x.dtype), reduction)


@decomposes(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    """The gradient of the input."""
    if not beta or x.dtype != target.dtype:
        return NotImplemented
    factor = 1.0 / x.numel() if reduction == 1 else 1.0
    difference = wide(x) - wide(target)
    g = factor * wide(grad)
    inner = torch.where(difference <= -beta, -g, torch.where(difference >= beta, g, g * difference / beta))
    return inner.to(x.dtype)


@decomposes(aten.huber_loss.default)
def huber_loss(x: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    """Each element's loss, then what is made of them."""
    if not reduction or x.dtype != target.dtype:
        return NotImplemented
    return reduced(aten.huber_loss(x, target, 0, delta), reduction)


@decomposes(aten.binary_cross_entropy.default)
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Maybe = None, reduction: int = 1) -> Tensor:
    """Each element's loss, then what is made of them."""
    return reduced(aten.binary_cross_entropy(x, target, weight, 0), reduction) if reduction else NotImplemented


def _class_mask(x: Tensor, target: Tensor, dim: int) -> Tensor:
    """Is this the target's class?"""
    shape = [1] * (x.dim() - dim)
    shape[0] = -1
    classes = torch.arange(x.shape[dim], device=x.device).view(shape)
    return classes == target.unsqueeze(dim)


def _nll_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Maybe, reduction: int, ignore: Any, total: Tensor, dim: int
) -> Tensor:
    share = -(grad / total) if reduction == 1 else -grad
    if reduction == 0 and x.dim() > 1:
        share = share.unsqueeze(dim)
    if weight is not None:
        shape = [1] * x.dim()
        shape[dim] = -1
        share = share * weight.view(shape)
    wanted = _class_mask(x, target, dim) & (target != ignore).unsqueeze(dim)
    return torch.where(wanted, share, torch.zeros((), dtype=x.dtype, device=x.device)).contiguous()


@decomposes(aten.nll_loss_backward.default)
def nll_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Maybe, reduction: int, ignore: Any, total: Tensor
) -> Tensor:
    """The target's class gets the gradient, all others 0; no scatter is needed to say so."""
    if x.dim() != 2 and x.dim() != 1:
        return NotImplemented
    return _nll_backward(grad, x, target, weight, reduction, ignore, total, x.dim() - 1)


@decomposes(aten.nll_loss2d_backward.default)
def nll_loss2d_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Maybe, reduction: int, ignore: Any, total: Tensor
) -> Tensor:
    """The same with pixels."""
    return _nll_backward(grad, x, target, weight, reduction, ignore, total, 1)
