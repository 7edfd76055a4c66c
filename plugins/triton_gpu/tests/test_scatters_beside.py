"""A scatter into what was filled for it takes what a kernel computes from its registers."""

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

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def packed(x: Tensor) -> tuple[Tensor, ...]:
    """The positive elements of each row, one after the other; how many there are."""
    kept = x > 0
    n = x.shape[1]
    place = torch.where(kept, kept.cumsum(1) - 1, n)
    out = torch.zeros(x.shape[0], n + 1, device=x.device).scatter_(1, place, x * 2)
    return out[:, :n], kept.sum(1)


def assigned(x: Tensor) -> tuple[Tensor, ...]:
    """A step of k-means: the nearest of the first five, sums and numbers of each."""
    nearest = (x[:, None] - x[:5]).square().sum(-1).argmin(-1)
    sums = torch.zeros(5, x.shape[1], device=x.device).index_add_(0, nearest, x)
    return nearest, sums, torch.zeros(5, device=x.device).index_add_(0, nearest, torch.ones_like(x[:, 0]))


def normalised(x: Tensor) -> tuple[Tensor, ...]:
    """Rows that are normalised, put back in another order by a kernel that looks up each place once; their norms."""
    order = torch.arange(x.shape[0] - 1, -1, -1, device=x.device)
    norm = x.norm(dim=-1, keepdim=True) + 1
    y = x / norm
    return torch.zeros_like(x).index_copy(0, order, y), norm, y


def pointwise(x: Tensor) -> tuple[Tensor, ...]:
    y = x.exp()
    place = (x.abs() * 3).long().clamp(max=6)
    counts = torch.zeros(7, device=x.device).index_add_(0, place.flatten(), y.flatten())
    return y + 1, counts, counts.cumsum(0)


def twice(x: Tensor) -> tuple[Tensor, ...]:
    """The second changes what the first has made: it waits for all of it."""
    y = x.softmax(-1)
    place = (y * 3).long().clamp(max=3)
    one = torch.zeros(x.shape[0], 4, device=x.device).scatter_add_(1, place, y)
    return y, one, one.scatter_add(1, place, y * 2)


def changed(x: Tensor) -> tuple[Tensor, ...]:
    """What is changed is no fill: it is another tensor's copy."""
    y = x.softmax(-1)
    place = (y * 3).long().clamp(max=x.shape[1] - 1)
    return y, x.scatter_add(1, place, y), x.sum(-1)


def ranked(x: Tensor) -> tuple[Tensor, ...]:
    """A place for each row: that of its greatest element; and for each element, by how many are smaller."""
    best = x.argmax(-1)
    chosen = torch.zeros(x.shape[1], device=x.device).index_add_(0, best, x.amax(-1))
    places = (x[:, :, None] > x[:, None, :]).sum(-1)
    return chosen, torch.zeros_like(x).scatter_(1, places, x * 2), places


def rewritten(x: Tensor) -> tuple[Tensor, ...]:
    """What is filled is what the kernel reads."""
    x = x.clone()
    y, places = x.cumsum(-1), torch.argsort(x, dim=-1, stable=True)
    x.fill_(2.0)
    x.scatter_(1, places, y)
    return x, y


CASES: list[tuple[Callable[[Tensor], tuple[Tensor, ...]], int]] = [
    (packed, 2), (normalised, 3), (pointwise, 2),
]  # fmt: skip


def check(fn: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor, **options: Any) -> None:
    got = jitney.compile(fn, backend="triton_gpu", fullgraph=True, **options)(x)
    torch.testing.assert_close(got, fn(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("fn", "kernels"), CASES)
def test_kernels(
    fn: Callable[[Tensor], tuple[Tensor, ...]], kernels: int, dynamic: bool, compiled_functions: list[Function]
) -> None:
    x = torch.randn(300, 130, device=DEVICE)
    if dynamic:
        jitney.maybe_mark_dynamic(x, 0)
    check(fn, x, dynamic=False)
    assert len(compiled_functions) == kernels


@settings(max_examples=30, deadline=None)
@given(
    fn=st.sampled_from([packed, assigned, normalised, pointwise, twice, changed, ranked, rewritten]),
    rows=st.integers(5, 40),
    columns=st.integers(2, 70),
    seed=st.integers(0, 99),
)
def test_any_size(fn: Callable[[Tensor], tuple[Tensor, ...]], rows: int, columns: int, seed: int) -> None:
    jitney.reset()
    torch.manual_seed(seed)
    check(fn, torch.randn(rows, columns).to(DEVICE))
