"""Rows of some hundred elements are sorted in one kernel, with what is around; order and places are eager's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import jitney
from jitney_lowering.decomposition import orders
from jitney_triton_gpu.code import Function

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INF, NAN = float("inf"), float("nan")
DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip


def mixed(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Numbers of which many are equal, with both zeros and the extremes of the dtype."""
    x = torch.randint(-4, 5, shape).to(dtype)
    flat = x.view(-1)
    if dtype.is_floating_point:
        flat[::7], flat[3::11], flat[5::13] = -0.0, INF, -INF
    elif dtype is not torch.bool:
        flat[::7], flat[3::11] = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return x.to(DEVICE)


def check(fn: Callable[..., Any], *args: torch.Tensor) -> None:
    expected, got = fn(*args), jitney.compile(fn, backend="triton_gpu", fullgraph=True, dynamic=False)(*args)
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True, check_stride=True)
        if a.dtype.is_floating_point:
            numbers = ~a.isnan()
            assert torch.equal(a[numbers].signbit(), b[numbers].signbit())


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_kernel_sorts_rows(dtype: torch.dtype, descending: bool, compiled_functions: list[Function]) -> None:
    check(lambda x: torch.sort(x, dim=-1, descending=descending, stable=True), mixed(dtype, 5, 100))
    assert len(compiled_functions) == 1 and "tl.sort" in compiled_functions[0].text


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_rows(data: st.DataObject) -> None:
    length, dim = data.draw(st.integers(65, 300)), data.draw(st.integers(0, 2))
    shape = [2, 3]
    shape.insert(dim, length)
    x = mixed(data.draw(st.sampled_from(DTYPES)), *shape)
    if x.dtype.is_floating_point:
        for _ in range(data.draw(st.integers(0, 3))):
            x.view(-1)[data.draw(st.integers(0, x.numel() - 1))] = NAN
    order = data.draw(st.permutations(range(3)))
    x, dim = x.permute(order), order.index(dim)
    descending = data.draw(st.booleans())
    jitney.reset()
    check(lambda x: torch.sort(x, dim=dim, descending=descending, stable=True), x)


def picked(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        *torch.topk(x, 9), *torch.topk(x, 70, largest=False), *torch.kthvalue(x, 40),
        *torch.kthvalue(x, 1, keepdim=True), *torch.median(x, -1), *torch.median(x.mT, 1, keepdim=True),
    )  # fmt: skip


@pytest.mark.parametrize("missing", [False, True])
def test_selections(missing: bool, compiled_functions: list[Function]) -> None:
    x = torch.stack([torch.randperm(90) for _ in range(4)]).float().sub(45).to(DEVICE)
    if missing:
        x[1, 30] = x[1, 60] = x[3, 89] = NAN
        check(lambda x: torch.median(x, -1), x)
        check(lambda x: (*torch.kthvalue(x, 88), torch.topk(x, 9)[0]), x)
        x[2] = NAN
        check(lambda x: torch.median(x, -1), x)
    else:
        check(picked, x)
    assert any("tl.sort" in f.text for f in compiled_functions)


@pytest.mark.parametrize("dim", [0, -1])
def test_keys_of_what_is_not_wanted_are_not_written(
    dim: int, compiled_functions: list[Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "SHORT", orders.PAIRS)  # as on GPUs
    x = torch.stack([torch.randperm(24) for _ in range(20)], 1 + dim).float().to(DEVICE)
    check(lambda x: torch.median(x, dim), x)
    check(lambda x: torch.kthvalue(x.int(), 5, dim), x)
    check(lambda x: torch.topk(x, 2, dim), x)
    sorting = [f for f in compiled_functions if "tl.sort" in f.text]
    assert len(sorting) == 3
    for function in sorting:
        assert not [line for line in function.text.splitlines() if "tl.store" in line and re.search(r"\br\b", line)]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.sort((x * 2 + 1).round(), dim=1, stable=True),
        lambda x: (x.sort(-1)[0].flip(-1), x.flip(-1).sort(-1)[0], x.sort(-1)[0].cumsum(-1)),
        lambda x: (x.argsort(-1).argsort(-1), x.argsort(dim=0, stable=True)),
        lambda x: torch.sort(torch.triu(x), dim=-1, stable=True),
        lambda x: torch.sort(x[:1].expand(3, x.shape[1]), dim=1, stable=True),
        lambda x: (x.sort(-1)[0][:, 10:30], x.gather(1, x.argsort(-1, descending=True)[:, :20])),
        lambda x: (torch.quantile(x, 0.25, dim=-1), torch.sort(x.cumsum(-1), dim=-1, stable=True)[1]),
    ],
)
def test_with_what_is_around(fn: Callable[..., Any]) -> None:
    check(fn, torch.stack([torch.randperm(80) for _ in range(80)]).float().sub(40).to(DEVICE))


def test_gradients() -> None:
    x = torch.randn(6, 90, device=DEVICE)

    def loss(x: torch.Tensor) -> torch.Tensor:
        values, places = torch.topk(x.sort(-1, descending=True)[0].diff(), 8)
        return (values * places).sum() + x.median(-1)[0].pow(2).sum()

    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    jitney.compile(loss, backend="triton_gpu", fullgraph=True)(mine).backward()
    loss(theirs).backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_long_rows_and_other_widths_stay_operators(compiled_functions: list[Function]) -> None:
    check(lambda x: (*torch.topk(x, 3), *torch.sort(x, dim=-1, stable=True)), torch.randn(3, 600, device=DEVICE))
    check(lambda x: torch.sort(x, dim=-1, stable=True), torch.randn(3, 100, dtype=torch.float64, device=DEVICE))
    assert not any("tl.sort" in f.text for f in compiled_functions)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_short_rows(data: st.DataObject) -> None:
    """As on GPUs, where comparisons of all pairs take longer; rows that lie side by side too."""
    shape = data.draw(st.tuples(st.integers(2, 5), st.integers(2, 33), st.integers(2, 5)).flatmap(st.permutations))
    dim, descending = data.draw(st.integers(0, 2)), data.draw(st.booleans())
    x = mixed(data.draw(st.sampled_from(DTYPES)), *shape)
    jitney.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders, "SHORT", 1)
        check(lambda x: torch.sort(x, dim=dim, descending=descending, stable=True), x)
