"""Rows of pairs that are computed from pairs: each thread has a pair, and loads nothing twice."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import jitney
from jitney_triton_gpu.code import Function

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    x = torch.nn.functional.rms_norm(x, (x.shape[-1],))
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def centred(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Two reductions of everything, and one of products of neighbours."""
    x = torch.nn.functional.layer_norm(x, (x.shape[-1],))
    a, b = x[..., ::2], x[..., 1::2]
    scale = (a * b).sum(-1, keepdim=True).tanh()
    return torch.stack([b * cos * scale, a * sin - b], -1).flatten(-2)


def triples(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.softmax(-1)[..., ::2], x[..., 1::2]
    y = torch.stack([a * cos, b * sin, a + b], -1).flatten(-2)
    return y * y.abs().amax(-1, keepdim=True)


def extremes(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Positions are of elements, not of pairs."""
    x = x - x.mean(-1, keepdim=True)
    a, b = x[..., ::2], x[..., 1::2]
    y = torch.stack([a * cos, b * sin], -1).flatten(-2)
    return y + y.argmax(-1, keepdim=True)


def arguments(rows: int, pairs: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    shapes = ((rows, 3, 2 * pairs), (3, pairs), (3, pairs))
    return [torch.randn(shape).to(DEVICE, dtype) for shape in shapes]


def test_a_thread_has_a_pair(compiled_functions: list[Function]) -> None:
    args = arguments(40, 32)
    got = jitney.compile(rotated, backend="triton_gpu", fullgraph=True)(*args)
    torch.testing.assert_close(got, rotated(*args))
    text = compiled_functions[0].text
    assert len(compiled_functions) == 1
    assert text.count("tl.load") == 3 and text.count("tl.store") == 1 and "tl.where" not in text


@settings(max_examples=20, deadline=None)
@given(
    fn=st.sampled_from([rotated, centred, triples, extremes]),
    rows=st.integers(2, 20),
    pairs=st.integers(2, 40),
    dtype=st.sampled_from([torch.float32, torch.float16]),
)
def test_any_rows(fn: Callable[..., Tensor], rows: int, pairs: int, dtype: torch.dtype) -> None:
    jitney.reset()
    dtype = torch.float32 if fn is extremes else dtype
    args = arguments(rows, pairs, dtype)
    got = jitney.compile(fn, backend="triton_gpu", fullgraph=True)(*args)
    exact = fn(*(a.double() for a in args))
    tolerance = 1e-4 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=tolerance)


def test_pairs_that_all_rows_have_in_common_are_loaded_as_usual(compiled_functions: list[Function]) -> None:
    """Both of a pair at once would be laid out for a single row: each warp would compute all rows."""

    def held(x: Tensor, limits: Tensor) -> Tensor:
        low, high = limits.unbind(-1)
        y = x
        for _ in range(3):
            y = (x + y.sum(-1, keepdim=True) * 0.1).clamp(low, high)
        return y

    x, limits = torch.randn(200, 48).to(DEVICE), torch.randn(48, 2).sort(-1)[0].to(DEVICE)
    got = jitney.compile(held, backend="triton_gpu", fullgraph=True)(x, limits)
    torch.testing.assert_close(got, held(x, limits))
    assert not any("tl.split" in f.text for f in compiled_functions)
