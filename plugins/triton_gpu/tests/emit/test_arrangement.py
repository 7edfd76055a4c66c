"""Tiles of rows: which dimension is the last one, so that threads go along memory also where Triton cannot tell."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import jitney
from jitney_triton_gpu.code import Function


def normalised(x: Tensor) -> Tensor:
    x = x - x.mean(1, keepdim=True)
    return x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt()


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "norms": normalised,
    "softmax": lambda x: x.softmax(1),
    "running sums": lambda x: x.cumsum(1) * 2,
    "sums from the end": lambda x: x.flip(1).cumsum(1).flip(1),
    "extremes": lambda x: (x.argmax(1), x.amin(1), (x > 0).any(1)),
    "sorted": lambda x: x[:, :300].sort(1).values + 1,
    "sums of channels": lambda x: (x.sum((0, 2, 3)), x.amax((0, 2, 3)), x.argmin(0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shape", [(2, 5, 7, 7), (3, 70, 5, 9), (2, 300, 3, 11), (2, 9000, 1, 3)])
def test_channels_of_odd_images(name: str, shape: tuple[int, ...], device: torch.device) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    fn = PROGRAMS[name]
    for dynamic in (False, True):
        found = jitney.compile(fn, backend="triton_gpu", fullgraph=True, dynamic=dynamic)(x)
        torch.testing.assert_close(found, fn(x), rtol=1e-4, atol=1e-4)


def dimensions(text: str) -> tuple[str, str]:
    """The subscripts of the numbers of rows and of their elements."""
    rows, elements = (re.search(rf"{name}BLOCK\)(\[[^\]]*\])", text) for name in ("X", "R"))
    assert rows is not None and elements is not None
    return rows[1], elements[1]


def test_what_memory_goes_along_is_the_last_dimension(compiled_functions: list[Function], device: torch.device) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x[:, :, :, 1:] * 2).softmax(1), (x * 3).softmax(3)

    x = torch.randn(600, 24, 7, 30, device=device)
    jitney.compile(fn, backend="triton_gpu", fullgraph=True)(x)
    shown = {dimensions(f.text) for f in compiled_functions if "RBLOCK" in f.text}
    assert shown == {("[None, :]", "[:, None]"), ("[:, None]", "[None, :]")}
