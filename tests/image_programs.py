"""Programs over windows and samples of images, for the tests of the lowering and of backends that make kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

from jitney_lowering import GPU

POLICY = replace(GPU, asserts=True, scatters=True)  # of an emitter that writes all there is
Program = tuple[Callable[..., torch.Tensor], Callable[[], tuple[torch.Tensor, ...]]]


def normal(*size: int) -> torch.Tensor:
    """Random numbers."""
    return torch.randn(size, generator=torch.Generator().manual_seed(2))


def columns(channels: int, kernel: int, windows: int) -> torch.Tensor:
    """What is to be folded: two matrices."""
    return normal(2, channels * kernel, windows)


WINDOWS: dict[str, Program] = {
    "unfold": (lambda x: F.unfold(x * 2, 3, padding=1) + 1, lambda: (normal(2, 3, 6, 5),)),
    "unfold without padding": (lambda x: F.unfold(x * 2, (2, 3)) + 1, lambda: (normal(2, 3, 6, 5),)),
    "unfold patches": (lambda x: F.unfold(x, 2, stride=2).sigmoid(), lambda: (normal(2, 3, 6, 5),)),
    "unfold with gaps": (lambda x: F.unfold(x, (2, 1), stride=3, padding=1) * 2, lambda: (normal(2, 3, 6, 5),)),
    "unfold with holes": (lambda x: F.unfold(x, 2, 3, 2, 2) * 2, lambda: (normal(2, 3, 6, 5),)),
    "unfold one image": (lambda x: F.unfold(x, 2) * 2, lambda: (normal(3, 6, 5),)),
    "means of windows": (
        lambda x: F.unfold(x, 3, padding=1).view(len(x), 3, 9, -1).mean(2),
        lambda: (normal(2, 3, 6, 5),),
    ),
    "fold": (lambda x: F.fold(x * 2, (6, 5), 3, padding=1) + 1, lambda: (columns(3, 9, 30),)),
    "fold without padding": (lambda x: F.fold(x * 2, (6, 5), (2, 3)) + 1, lambda: (columns(3, 6, 15),)),
    "fold patches": (lambda x: F.fold(x.exp(), (6, 5), 2, stride=2) * 2, lambda: (columns(3, 4, 6),)),
    "fold with gaps": (lambda x: F.fold(x, (6, 5), (2, 1), 1, 1, 3) * 2, lambda: (columns(3, 2, 9),)),
    "fold windows that overlap at a distance": (
        lambda x: F.fold(x, (6, 5), (4, 3), padding=(2, 1), stride=(3, 2)) * 2,
        lambda: (columns(3, 12, 9),),
    ),
    "fold with holes": (lambda x: F.fold(x, (6, 5), 2, 3, 2, 2) * 2, lambda: (columns(3, 4, 12),)),
    "fold one image": (lambda x: F.fold(x, (6, 5), 2) * 2, lambda: (normal(12, 20),)),
}


def resized(dims: int, mode: str, **how: Any) -> Program:
    """An image of so many dimensions, made larger or smaller."""
    image = normal(2, 3, *(7, 6, 5)[:dims])
    return (lambda x: F.interpolate(x * 2, mode=mode, **how) + 1), lambda: (image,)


RESIZED: dict[str, Program] = {
    "nearest": resized(2, "nearest", scale_factor=3),
    "nearest, by a fraction": resized(2, "nearest", scale_factor=2.5),
    "nearest, of a row": resized(1, "nearest", size=11),
    "nearest, of a volume": resized(3, "nearest", size=(3, 9, 5)),
    "nearest, exact": resized(2, "nearest-exact", scale_factor=2),
    "nearest, exact, by a fraction": resized(2, "nearest-exact", scale_factor=0.6),
    "linear": resized(1, "linear", scale_factor=2),
    "linear, far larger": resized(1, "linear", size=150),
    "bilinear": resized(2, "bilinear", scale_factor=2),
    "bilinear, from corner to corner": resized(2, "bilinear", size=(11, 17), align_corners=True),
    "bilinear, by a fraction": resized(2, "bilinear", scale_factor=(2.5, 0.6)),
    "bilinear, smaller": resized(2, "bilinear", size=(1, 3)),
    "bilinear, one side": resized(2, "bilinear", size=(7, 11)),
    "bilinear, far larger": resized(2, "bilinear", scale_factor=(8, 2)),
    "trilinear": resized(3, "trilinear", scale_factor=(2, 1.5, 1)),
    "bicubic": resized(2, "bicubic", scale_factor=2),
    "bicubic, from corner to corner": resized(2, "bicubic", size=(11, 4), align_corners=True),
    "resized halves of channels last": (
        lambda x: F.interpolate(x.contiguous(memory_format=torch.channels_last), scale_factor=2, mode="bilinear"),
        lambda: (normal(2, 4, 5, 6),),
    ),
}


def sampled(dims: int, mode: str, padding: str, aligned: bool) -> Program:
    """An image of so many dimensions at places of a grid, some of which are outside."""
    image, grid = normal(2, 3, *(5, 6, 4)[:dims]), normal(2, *(4, 3, 5)[:dims], dims)
    return (lambda x, at: F.grid_sample(x * 2, at, mode, padding, aligned) + 1), lambda: (image, grid)


SAMPLED: dict[str, Program] = {
    f"{mode} of {dims} dimensions, {padding}{', from corner to corner' if aligned else ''}": sampled(
        dims, mode, padding, aligned
    )
    for dims, mode, padding, aligned in (
        (2, "bilinear", "zeros", False),
        (2, "bilinear", "border", True),
        (2, "bilinear", "reflection", False),
        (2, "nearest", "zeros", True),
        (2, "nearest", "reflection", False),
        (3, "bilinear", "zeros", True),
        (3, "bilinear", "border", False),
        (3, "nearest", "reflection", True),
    )
}
PROGRAMS: dict[str, Program] = {**WINDOWS, **RESIZED, **SAMPLED}
CUBIC: dict[str, Program] = {  # whose gradients are those of operators as a whole
    "bicubic": sampled(2, "bicubic", "zeros", False),
    "bicubic of a mirror": sampled(2, "bicubic", "reflection", True),
}

NAN, INF = float("nan"), float("inf")
NOWHERE = [(NAN, 0.1), (0.1, NAN), (INF, 0.0), (0.0, -INF), (1e30, 0.2), (1.0, 1.0), (-1.0, -1.0), (5.0, -7.0)]
