"""Short rows that are written out: a thread loads and stores what lies side by side at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import jitney
from jitney_triton_gpu.code import Function

Fn = Callable[..., Any]


def quaternions(q: Tensor, p: Tensor) -> Tensor:
    (a, b, c, d), (e, f, g, h) = q.unbind(-1), p.unbind(-1)
    scale = (q * q).sum(-1, keepdim=True).rsqrt()
    parts = [
        a * e - b * f - c * g - d * h,
        a * f + b * e + c * h - d * g,
        a * g - b * h + c * e + d * f,
        a * h + b * g - c * f + d * e,
    ]
    return torch.stack(parts, -1) * scale


def mixed(s: Tensor, k: Tensor) -> Tensor:
    """As a cipher mixes the bytes of a word."""
    total = s[..., 0] ^ s[..., 1] ^ s[..., 2] ^ s[..., 3]
    return s ^ total[..., None] ^ ((s ^ s.roll(-1, -1)) << 1) ^ k


def corners(boxes: Tensor, other: Tensor) -> Tensor:
    centre, size = boxes[..., :2], boxes[..., 2:]
    area = size.prod(-1, keepdim=True)
    return torch.cat([centre - size / 2, centre + size / 2], -1) * area.tanh() + other


def first_three(x: Tensor, y: Tensor) -> Tensor:
    """Rows of five: no place is a multiple of four for all."""
    total = x[..., 0] * x[..., 1] + x[..., 2]
    return torch.cat([(x[..., :3] + total[..., None]).sin(), y[..., :2]], -1)


@given(st.sampled_from([quaternions, corners]), st.integers(1, 1300), st.data())
@settings(max_examples=20, deadline=None)
def test_rows_of_four(fn: Fn, rows: int, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
    dynamic = data.draw(st.booleans())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = (torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows)).to(device, dtype) for _ in range(2))
    got = jitney.compile(fn, backend="triton_gpu", fullgraph=True, dynamic=dynamic)(x, y)
    torch.testing.assert_close(got, fn(x, y))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_whole_numbers(dtype: torch.dtype, device: torch.device) -> None:
    s, k = (torch.randint(0, 100, shape).to(device, dtype) for shape in ((777, 3, 4), (4,)))
    assert jitney.compile(mixed, backend="triton_gpu", fullgraph=True)(s, k).equal(mixed(s, k))


def test_rows_of_five(device: torch.device) -> None:
    x, y = (torch.randn(513, 5, device=device) for _ in range(2))
    got = jitney.compile(first_three, backend="triton_gpu", fullgraph=True)(x, y)
    torch.testing.assert_close(got, first_three(x, y))


def test_a_row_is_one_load_and_one_store(compiled_functions: list[Function], device: torch.device) -> None:
    s, k = (torch.randint(0, 100, shape, dtype=torch.int32, device=device) for shape in ((1 << 17, 4, 4), (4,)))
    jitney.compile(mixed, backend="triton_gpu", fullgraph=True)(s, k)
    (function,) = compiled_functions
    assert function.text.count("tl.store(") == 1 and "tl.join" in function.text
    assert function.text.count("tl.load(") == 1 + 4  # the row, and the key's elements
    assert function.text.count("tl.split") == 3
