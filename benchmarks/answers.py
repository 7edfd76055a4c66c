"""Is a result the same as eager's?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from workloads_cpu import tensors_in

TOLERANCE = 1e-3  # of a tensor's largest value
FLOOR = 1e-6  # of the largest value of all: a gradient that is zero but for rounding


def frozen(result: Any) -> list[Tensor]:
    """Copies of the tensors in a result: what later steps write does not change them."""
    return [t.detach().clone() for t in tensors_in(result)]


def largest(tensor: Tensor) -> float:
    """The largest finite magnitude, 0 if there is none."""
    if not tensor.numel():
        return 0.0
    return float(torch.where(tensor.isfinite(), tensor, 0).abs().max())


def difference(expected: Tensor, got: Tensor) -> float:
    """The largest difference of two tensors of one shape; infinite where only one is NaN or they differ in infinity."""
    if not expected.numel():
        return 0.0
    alike = (expected == got) | (expected.isnan() & got.isnan())
    return float(torch.where(alike, 0.0, (expected - got).abs()).nan_to_num(float("inf")).max())


def compare(expected: list[Tensor], got: list[Tensor]) -> tuple[float, str]:
    """The largest difference, as a part of its tensor's largest value, and what is wrong ("" where nothing is)."""
    if len(expected) != len(got):
        return float("inf"), f"{len(got)} tensors instead of {len(expected)}"
    whole = max(map(largest, expected), default=0.0)
    worst = 0.0
    for i, (a, b) in enumerate(zip(expected, got, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf"), f"tensor {i}: {b.dtype} {tuple(b.shape)} instead of {a.dtype} {tuple(a.shape)}"
        found, scale = difference(a, b), largest(a)
        worst = max(worst, found / scale if scale else found)
        if found > TOLERANCE * scale + FLOOR * whole:
            return worst, f"tensor {i} of {len(expected)}: off by {found:.3g}, its largest value is {scale:.3g}"
    return worst, ""
