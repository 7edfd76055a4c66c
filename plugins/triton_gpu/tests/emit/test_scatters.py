"""Kernels that store, or add, at computed places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from jitney_lowering.index import Var, index
from jitney_lowering.ir import Kernel, Nest, Scatter, apply, checked, constant, indirect, load, put

ROWS, WIDTH, COUNT = 5, 16, 40


def scattering(kind: str, dtype: torch.dtype, *, masked: bool = False, width: int = WIDTH) -> Kernel:
    """``out[at[i], j] kind= value[i, j]``, where ``at[i]`` is not 3 if that is masked."""
    i, j = Var("i", COUNT), Var("j", width)
    number = load("at", index(i), torch.int64)
    fine = apply("lt", number, constant(ROWS, torch.int64))
    atom, place = indirect(checked(number, fine, "IndexError: too far", IndexError), 0, ROWS - 1)
    mask = apply("ne", number, constant(3, torch.int64)) if masked else None
    value = load("value", index(i) * width + j, dtype)
    change = put("out", atom * width + j, ((atom, place),), value, kind, mask)
    buffers = {"at": torch.int64, "value": dtype, "out": dtype}
    made = Kernel("k", (i,), (Nest((j,), (Scatter("out", change),)),), buffers)
    made.verify()
    return made


def run(kernel: Kernel, compiled: Callable[..., Any], at: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(ROWS, value.shape[1], dtype=value.dtype)
    compiled(kernel)({"at": at, "value": value, "out": out})
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("width", [1, 7, WIDTH, 256, 600])
def test_sums(compiled: Callable[..., Any], dtype: torch.dtype, masked: bool, width: int) -> None:
    at, value = torch.arange(COUNT) * 7 % ROWS, (torch.randn(COUNT, width) * 9).to(dtype)
    kept = value * (at != 3)[:, None] if masked else value
    got = run(scattering("sum", dtype, masked=masked, width=width), compiled, at, value)
    torch.testing.assert_close(got, torch.zeros(ROWS, width, dtype=dtype).index_add(0, at, kept))


@pytest.mark.parametrize(("kind", "meaning"), [("max", "amax"), ("min", "amin")])
def test_extremes(compiled: Callable[..., Any], kind: str, meaning: str) -> None:
    at, value = torch.arange(COUNT) * 7 % ROWS, torch.randint(-99, 99, (COUNT, WIDTH))
    places = at[:, None].expand(COUNT, WIDTH)
    wanted = torch.zeros(ROWS, WIDTH, dtype=torch.int64).scatter_reduce(0, places, value, meaning)
    assert torch.equal(run(scattering(kind, torch.int64), compiled, at, value), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.uint8])
def test_stores(compiled: Callable[..., Any], dtype: torch.dtype) -> None:
    at, value = torch.arange(COUNT) % ROWS, torch.randn(COUNT, WIDTH).gt(0).to(dtype)
    value = value[at]  # equal where places are
    assert torch.equal(run(scattering("store", dtype), compiled, at, value), value[:ROWS])


def test_indices_of_short_rows_are_looked_up_once(compiled: Callable[..., Any]) -> None:
    text = compiled(scattering("sum", torch.float32, masked=True)).text
    assert text.count("tl.load(") == 2 and text.count("tl.device_assert(") == 1
    assert "tl.atomic_add(" in text and 'sem="relaxed"' in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="a wrong index stops the device for good")
def test_a_wrong_index_stops_the_kernel(compiled: Callable[..., Any]) -> None:
    with pytest.raises(IndexError, match="too far"):
        run(scattering("sum", torch.float32), compiled, torch.full((COUNT,), ROWS), torch.ones(COUNT, WIDTH))
