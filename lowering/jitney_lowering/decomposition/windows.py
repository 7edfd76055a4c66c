"""Windows of signals, with the formulas of eager's kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes

Formula = Callable[[Tensor, int], Tensor]
EXACT = (torch.float32, torch.float64)  # of halves, eager rounds its factors, too, on some devices


def window(length: int, periodic: bool, formula: Formula, **options: Any) -> Any:
    """A window of that length.

    Args:
        length: elements.
        periodic: is the last element of a window that is one longer left out?
        formula: from the places 0, 1, ... of its elements, and how many these are, to the window.
        options: ``dtype``, ``device`` and others of a factory function's.
    """
    dtype = options.get("dtype") or torch.get_default_dtype()
    if not isinstance(length, int) or length < 0 or dtype not in EXACT:
        return NotImplemented
    options["dtype"] = dtype
    if length < 2:
        return torch.ones(length, **options)
    count = length + periodic
    return formula(torch.arange(count, **options), count)[:length].contiguous()


def _cosine(places: Tensor, count: int, alpha: float, beta: float) -> Tensor:
    return (places * (2 * math.pi / (count - 1))).cos() * -beta + alpha


def _blackman(places: Tensor, count: int) -> Tensor:
    angles = places * (math.pi / (count - 1))
    return (angles * 4).cos() * 0.08 - (angles * 2).cos() * 0.5 + 0.42


def _bartlett(places: Tensor, count: int) -> Tensor:
    ramp = places * (2 / (count - 1))
    return torch.where(places > (count - 1) >> 1, 2 - ramp, ramp)


@decomposes(aten.hamming_window.default)
def hamming(length: int, **options: Any) -> Any:
    """``0.54 - 0.46 cos``."""
    return hamming_of(length, True, **options)


@decomposes(
    aten.hamming_window.periodic, aten.hamming_window.periodic_alpha, aten.hamming_window.periodic_alpha_beta
)  # fmt: skip
def hamming_of(length: int, periodic: bool, alpha: float = 0.54, beta: float = 0.46, **options: Any) -> Any:
    """``alpha - beta cos``."""
    return window(length, periodic, functools.partial(_cosine, alpha=alpha, beta=beta), **options)


@decomposes(aten.hann_window.default, aten.hann_window.periodic)
def hann(length: int, periodic: bool = True, **options: Any) -> Any:
    """``0.5 - 0.5 cos``."""
    return hamming_of(length, periodic, 0.5, 0.5, **options)


@decomposes(aten.blackman_window.default, aten.blackman_window.periodic)
def blackman(length: int, periodic: bool = True, **options: Any) -> Any:
    """``0.42 - 0.5 cos + 0.08 cos`` of twice the angle."""
    return window(length, periodic, _blackman, **options)


@decomposes(aten.bartlett_window.default, aten.bartlett_window.periodic)
def bartlett(length: int, periodic: bool = True, **options: Any) -> Any:
    """A triangle."""
    return window(length, periodic, _bartlett, **options)
