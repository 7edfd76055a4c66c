"""Elements a few apart in memory, and such that lie anywhere: read and written as the reference does."""

from __future__ import annotations

import mmap

import pytest
import torch
from kernel_reference import run_kernel

from jitney_lowering.index import Var, index
from jitney_lowering.ir import Kernel, Nest, Store, apply, constant, indirect, load

LENGTHS = (1, 3, 4, 7, 8, 15, 16, 17, 32, 50, 128, 129)
WIDTHS = (0, 16)
DTYPES = (torch.float32, torch.float64, torch.int8, torch.bfloat16, torch.bool)


def numbers(n: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(n) * 37 % 101 - 50).to(dtype)


def check(compiled, kernel, buffers, vector_bytes):
    expected = {name: t.clone() for name, t in buffers.items()}
    run_kernel(kernel, expected)
    compiled(kernel, vector_bytes=vector_bytes)(buffers)
    for name in buffers:
        torch.testing.assert_close(buffers[name], expected[name], rtol=0, atol=0)


@pytest.mark.parametrize("vector_bytes", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_rows_of_a_few_elements(compiled, step, dtype, vector_bytes):
    """Each row is turned round, so that every element is read and written at the distance of rows."""
    for n in LENGTHS:
        i = Var("i", n)
        stores = tuple(Store("out", i * step + k + 1, load("a", i * step + step - 1 - k, dtype)) for k in range(step))
        kernel = Kernel("k", (), (Nest((i,), stores),), {"a": dtype, "out": dtype})
        buffers = {"a": numbers(n * step, dtype), "out": torch.zeros(n * step + 2, dtype=dtype)}
        check(compiled, kernel, buffers, vector_bytes)


@pytest.mark.parametrize("places", [(0, 2), (2, 0, 1), (1,)], ids=str)
def test_elements_of_rows_that_are_no_whole_row_or_in_another_order(compiled, places):
    i, kind = Var("i", 100), torch.float32
    value = apply("mul", load("a", index(i), kind), load("b", i * 4 + 1, kind))
    stores = tuple(Store("out", i * 3 + k, apply("add", value, constant(float(k), kind))) for k in places)
    kernel = Kernel("k", (), (Nest((i,), stores),), dict.fromkeys(("a", "b", "out"), kind))
    check(compiled, kernel, {"a": numbers(100, kind), "b": numbers(400, kind), "out": torch.zeros(310)}, 0)


def test_nothing_is_read_beyond_the_last_row(compiled):
    """The last element lies at the end of a page after which nothing may be read."""
    page = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    every = torch.frombuffer(page, dtype=torch.float32)
    for step in (2, 3, 4):
        n, size = 64, mmap.PAGESIZE // 4
        first = size - ((n - 1) * step + 1)
        i = Var("i", n)
        kernel = Kernel(
            "k", (), (Nest((i,), (Store("out", index(i), load("a", i * step, torch.float32)),)),),
            {"a": torch.float32, "out": torch.float32},
        )  # fmt: skip
        every.copy_(torch.arange(len(every)))
        every[size:] = float("nan")
        out = torch.zeros(n)
        compiled(kernel)({"a": every[first:], "out": out})
        assert out.tolist() == every[first:size:step].tolist()


@pytest.mark.parametrize("vector_bytes", WIDTHS)
@pytest.mark.parametrize("number", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8], ids=str)
def test_elements_anywhere(compiled, dtype, number, vector_bytes):
    """Also where only some lanes of the last vector are iterations, and their places alone are known to be good."""
    for n in LENGTHS:
        i, j = Var("i", 3), Var("j", n)
        at = load("at", i * n + j, number)
        pair = indirect(at, 0, 99)
        store = Store("out", i * n + j, load("a", pair[0] + i * 100, dtype, (pair,)))
        kernel = Kernel("k", (i,), (Nest((j,), (store,)),), {"a": dtype, "at": number, "out": dtype})
        places = torch.cat([torch.arange(3 * n) * 31 % 100, torch.full((20,), 1 << 30)]).to(number)
        buffers = {"a": numbers(300, dtype), "at": places, "out": torch.zeros(3 * n, dtype=dtype)}
        check(compiled, kernel, buffers, vector_bytes)
