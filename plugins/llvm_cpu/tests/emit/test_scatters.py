"""Kernels that store, or add, at computed places: in order, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from jitney_llvm_cpu.emit.scattering import is_shared
from jitney_lowering.index import Var, index
from jitney_lowering.ir import Kernel, Nest, Scatter, apply, constant, indirect, load, put

ROWS, WIDTH, COUNT = 5, 16, 40


def scattering(
    kind: str, dtype: torch.dtype, *, masked: bool = False, width: int = WIDTH, outside: bool = True
) -> Kernel:
    """``out[at[i], j] kind= value[i, j]``, where ``at[i]`` is not 3 if that is masked."""
    i, j = Var("i", COUNT), Var("j", width)
    number = load("at", index(i), torch.int64)
    atom, place = indirect(number, 0, ROWS - 1)
    mask = apply("ne", number, constant(3, torch.int64)) if masked else None
    value = load("value", index(i) * width + j, dtype)
    change = put("out", atom * width + j, ((atom, place),), value, kind, mask)
    buffers = {"at": torch.int64, "value": dtype, "out": dtype}
    outer, inner = ((i,), (j,)) if outside else ((), (i, j))
    made = Kernel("k", outer, (Nest(inner, (Scatter("out", change),)),), buffers)
    made.verify()
    return made


def run(kernel: Kernel, compiled: Callable[..., Any], at: torch.Tensor, value: torch.Tensor, threads: int) -> Any:
    out = torch.zeros(ROWS, value.shape[1], dtype=value.dtype)
    compiled(kernel)({"at": at, "value": value, "out": out}, threads=threads)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("width", [1, 7, WIDTH, 600])
@pytest.mark.parametrize("outside", [False, True])
def test_sums(compiled: Callable[..., Any], dtype: torch.dtype, masked: bool, width: int, outside: bool) -> None:
    at, value = torch.arange(COUNT) * 7 % ROWS, (torch.randn(COUNT, width) * 9).to(dtype)
    wanted = torch.zeros(ROWS, width, dtype=dtype)
    for row, place in zip(value, at.tolist(), strict=True):
        if not masked or place != 3:
            wanted[place] += row
    kernel = scattering("sum", dtype, masked=masked, width=width, outside=outside)
    assert is_shared(kernel) is (width > 1)
    for threads in (1, 3):
        assert torch.equal(run(kernel, compiled, at, value, threads), wanted)


@pytest.mark.parametrize(("kind", "meaning"), [("max", "amax"), ("min", "amin")])
def test_extremes(compiled: Callable[..., Any], kind: str, meaning: str) -> None:
    at, value = torch.arange(COUNT) * 7 % ROWS, torch.randint(-99, 99, (COUNT, WIDTH))
    places = at[:, None].expand(COUNT, WIDTH)
    wanted = torch.zeros(ROWS, WIDTH, dtype=torch.int64).scatter_reduce(0, places, value, meaning)
    assert torch.equal(run(scattering(kind, torch.int64), compiled, at, value, 3), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.uint8])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_last_store_stays(compiled: Callable[..., Any], dtype: torch.dtype, threads: int) -> None:
    at, value = torch.arange(COUNT) * 3 % ROWS, torch.randn(COUNT, WIDTH).gt(0).to(dtype)
    wanted = torch.zeros(ROWS, WIDTH, dtype=dtype)
    for row, place in zip(value, at.tolist(), strict=True):
        wanted[place] = row
    assert torch.equal(run(scattering("store", dtype), compiled, at, value, threads), wanted)


def test_places_that_change_within_rows(compiled: Callable[..., Any]) -> None:
    """``out[j, at[i]] += value[j, i]``: each row is one thread's."""
    i, j = Var("i", COUNT), Var("j", 3)
    atom, place = indirect(load("at", index(i), torch.int64), 0, ROWS - 1)
    value = load("value", index(j) * COUNT + i, torch.float32)
    change = put("out", index(j) * ROWS + atom, ((atom, place),), value, "sum")
    buffers = {"at": torch.int64, "value": torch.float32, "out": torch.float32}
    kernel = Kernel("k", (j,), (Nest((i,), (Scatter("out", change),)),), buffers)
    assert is_shared(kernel)
    at, values, out = torch.arange(COUNT) * 7 % ROWS, torch.randn(3, COUNT), torch.zeros(3, ROWS)
    compiled(kernel)({"at": at, "value": values, "out": out}, threads=3)
    torch.testing.assert_close(out, torch.zeros(3, ROWS).index_add(1, at, values))


def test_loops_that_meet_in_one_place_are_one_threads(compiled: Callable[..., Any]) -> None:
    """``out[4 * i + j] += value[i, j]``: windows overlap, so what is known before the inner loop says nothing."""
    i, j = Var("i", COUNT), Var("j", WIDTH)
    change = put("out", index(i) * 4 + j, (), load("value", index(i) * WIDTH + j, torch.float32), "sum")
    buffers = {"value": torch.float32, "out": torch.float32}
    kernel = Kernel("k", (i,), (Nest((j,), (Scatter("out", change),)),), buffers)
    assert not is_shared(kernel)
    values = torch.randint(-9, 9, (COUNT, WIDTH)).float()
    size = COUNT * 4 + WIDTH - 4
    places = torch.arange(size).unfold(0, WIDTH, 4)
    out = torch.zeros(size)
    compiled(kernel)({"value": values, "out": out}, threads=3)
    assert torch.equal(out, torch.zeros(size).index_put((places,), values, accumulate=True))
