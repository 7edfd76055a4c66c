"""Programs that go through flattened tensors whose dimensions are told apart by division only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def histogram(column: Tensor, bins: Tensor, weight: Tensor) -> Tensor:
    features = bins.shape[1]
    flat = (column[:, None] * (features * 8) + torch.arange(features) * 8 + bins).reshape(-1)
    return torch.zeros(4 * features * 8).scatter_add(0, flat, weight[:, None].expand(bins.shape).reshape(-1))


FLATTENED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "sum": (
        lambda x, y: (x[:, None] * y).reshape(-1).sum(),
        lambda: (torch.randn(20), torch.randn(20, 9)),
    ),
    "extremes": (
        lambda x, y: [f((x[:, None, :] + y[:, None]).reshape(-1)) for f in (torch.max, torch.argmin)],
        lambda: (torch.randn(10, 8), torch.randn(12, 1)[:10]),
    ),
    "rows": (
        lambda x, y: (x[:, :, None] * y).reshape(6, -1).sum(1),
        lambda: (torch.randn(6, 10), torch.randn(8)),
    ),
    "three dimensions": (
        lambda x, y: (x[:, None, None] + y[None, :, None]).expand(9, 10, 8).reshape(-1).exp().mean(),
        lambda: (torch.randn(9), torch.randn(10)),
    ),
    "repeats": (lambda x: x.repeat(5).cos().sum(), lambda: (torch.randn(16),)),
    "strides": (
        lambda x: (x.t()[:, :, None].expand(12, 10, 8)).reshape(-1).argmax(),
        lambda: (torch.randn(10, 12),),
    ),
    "scatter": (
        histogram,
        lambda: (torch.randint(4, (30,)), torch.randint(8, (30, 10)), torch.randn(30)),
    ),
}
