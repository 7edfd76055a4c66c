"""Loads with a mask: where it is false nothing is read."""

from __future__ import annotations

import ctypes
import mmap

import pytest
import torch

import jitney

PAGE = mmap.PAGESIZE


def at_the_edge(count: int, dtype: torch.dtype, *, first: bool) -> tuple[mmap.mmap, torch.Tensor]:
    """A tensor right behind, or before, memory that nobody may read."""
    memory = mmap.mmap(-1, 3 * PAGE)
    view = torch.frombuffer(memory, dtype=torch.uint8)
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(view.data_ptr() + (0 if first else 2 * PAGE)), PAGE, 0)
    start = PAGE if first else 2 * PAGE - count * dtype.itemsize
    made = torch.frombuffer(memory, dtype=dtype, count=count, offset=start)
    made.copy_(torch.arange(1, count + 1))
    return memory, made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int16])
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("size", [300, 30_000])
def test_nothing_is_read_beside_a_slice(dtype: torch.dtype, step: int, first: bool, size: int) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        start = size - 10 * step if first else 0
        return torch.slice_scatter(x * 2, y + 1, 0, start, start + 10 * step, step)

    _memory, y = at_the_edge(10, dtype, first=first)
    x = torch.ones(size, dtype=dtype)
    compiled = jitney.compile(program, backend="llvm_cpu", fullgraph=True)
    torch.testing.assert_close(compiled(x, y), program(x, y))


@pytest.mark.parametrize("first", [False, True])
def test_nothing_is_read_beside_a_row(first: bool) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.select_scatter(x * 2, y.flip(0) + 1, 1, 2)

    _memory, y = at_the_edge(50, torch.float32, first=first)
    x = torch.ones(50, 40)
    compiled = jitney.compile(program, backend="llvm_cpu", fullgraph=True)
    torch.testing.assert_close(compiled(x, y), program(x, y))
