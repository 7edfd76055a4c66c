"""Distances between rows."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes, is_empty

SHORT = 16  # elements of the longest row for which differences are as fast as eager's loops
POINT = 4  # and as fast as a product


def _is_short(x: Tensor, most: int = SHORT) -> bool:
    return isinstance(x.shape[-1], int) and 1 < x.shape[-1] <= most


@decomposes(aten._cdist_forward.default)
def cdist(a: Tensor, b: Tensor, p: float, mode: int | None) -> Tensor:
    """Distances of all pairs of rows, as differences where these are short; nothing is rounded that a product would.

    Longer rows are eager's: there a product is faster.
    """
    if is_empty(a) or is_empty(b) or not _is_short(a) or p in (0, math.inf):  # where nan is what it is in eager
        return NotImplemented
    return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, dim=-1)


@decomposes(aten._euclidean_dist.default)
def euclidean_dist(a: Tensor, b: Tensor) -> Tensor:
    """What ``cdist`` calls for many rows: a product, and what is done to its elements. Points in space as differences.

    Eager has the squares as two more columns of the product; its rows then lie at odd places.
    """
    if is_empty(a) or is_empty(b) or a.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    if _is_short(a, POINT):
        return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), 2, dim=-1)
    squares = a.square().sum(-1, keepdim=True) + b.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * (a @ b.mT)).clamp_min(0).sqrt()


@decomposes(aten._cdist_backward.default)
def cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    """The gradient of the first rows; of equal ones it is 0."""
    if is_empty(a) or is_empty(b) or not _is_short(a) or p not in (1, 2):
        return NotImplemented
    difference = a.unsqueeze(-2) - b.unsqueeze(-3)
    if p == 1:
        return (grad.unsqueeze(-1) * difference.sign()).sum(-2)
    share = torch.where(distances == 0, 0, grad / distances)
    return (share.unsqueeze(-1) * difference).sum(-2)


@decomposes(aten.norm.ScalarOpt_dim)
def norm(x: Tensor, p: Any, dim: Any, keepdim: bool = False) -> Tensor:
    """The norm along dimensions, of which none has no elements."""
    if not x.is_floating_point() or is_empty(x):
        return NotImplemented
    return torch.linalg.vector_norm(x, 2 if p is None else p, dim, keepdim)


@decomposes(aten.channel_shuffle.default)
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Channels of all groups in turn; of tensors whose layout is known and plain."""
    if is_empty(x) or any(type(n) is not int for n in (*x.shape, *x.stride())) or not x.is_contiguous():
        return NotImplemented
    parts = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return parts.transpose(1, 2).reshape(x.shape).clone(memory_format=torch.contiguous_format)
