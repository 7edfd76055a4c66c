"""Where numbers lie: XLA has them in order, eager's results have strides of their own."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def order_of(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions from the outermost in memory to the innermost, if there are no gaps; else None."""
    order = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: (-strides[d], d))
    order += [d for d in range(len(shape)) if shape[d] == 1]
    expected = 1
    for d in reversed(order):
        if shape[d] != 1 and strides[d] != expected:
            return None
        expected *= shape[d]
    return tuple(order)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes another."""
    back = [0] * len(order)
    for at, d in enumerate(order):
        back[d] = at
    return tuple(back)


def with_strides(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The numbers in memory of their own with these strides; those of repeated dimensions may be 0."""
    once = tuple(slice(0, 1) if s == 0 and n > 1 else slice(None) for s, n in zip(strides, tensor.shape, strict=True))
    part = tensor[once]
    made = torch.empty_strided(part.shape, strides, dtype=tensor.dtype)
    return made.copy_(part).expand(tensor.shape)
