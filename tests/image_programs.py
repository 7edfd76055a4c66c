"""Programs over windows and samples of images, for the tests of the lowering and of backends that make kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
PROGRAMS: dict[str, Program] = {**WINDOWS}
