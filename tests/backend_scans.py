"""Scans beside eager, for every backend that makes kernels: see ``backend_programs.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney

Program = Callable[..., Any]


def random(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def top_p(logits: torch.Tensor) -> torch.Tensor:
    p = logits.softmax(-1)
    return torch.where(p.cumsum(-1) - p > 0.9, float("-inf"), logits)


def over_its_input(x: torch.Tensor) -> torch.Tensor:
    x.cumsum_(-1)
    return x * 2


def over_what_it_is_made_of(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y.cumsum_(-1)
    x.add_(y)
    return y


def twice(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)).cumsum(-1).flip(-1).cumsum(-1).amax(0) / x.shape[-1]


def of_pairs(x: torch.Tensor) -> torch.Tensor:
    return x.sigmoid().reshape(-1, 2).cumsum(-1).reshape(x.shape) + x.reshape(2, -1).cumsum(-1).reshape(x.shape)


def gated(x: torch.Tensor) -> torch.Tensor:
    decay = F.logsigmoid(x).cumsum(-1)
    return decay.exp() * (x * (-decay).exp()).cumsum(-1)


FLOATS: dict[str, Program] = {
    "top p": top_p,
    "in place": over_its_input,
    "in place of a part": over_what_it_is_made_of,
    "twice": twice,
    "of pairs": of_pairs,
    "a gated recurrence": lambda x: gated(x[:, :40]),
    "beside its sum": lambda x: (x - x.cumsum(-1), x.sum(-1), x.cumsum(-1).amax(-1)),
    "products": lambda x: ((1 + x * 0.01).cumprod(-1), x.clamp(-1.1, 1.1).cumprod(0)),
    "extremes": lambda x: (*torch.cummax(x, -1), *torch.cummin(x, 0)),
    "logarithms of sums": lambda x: x.logcumsumexp(-1) - x.logcumsumexp(0),
    "down columns": lambda x: (x.exp().cumsum(0) * 2, x.sigmoid().cumsum(0).amax(0)),
    "in the middle": lambda x: x.reshape(2, -1, 3).cumsum(1) + x.reshape(2, -1, 3),
    "backwards": lambda x: x.flip(-1).cumsum(-1).flip(-1) * x,
}


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_scans_of_floats(name: str, dynamic: bool, backend: str, device: torch.device) -> None:
    fn = FLOATS[name]
    compiled = jitney.compile(fn, backend=backend, dynamic=dynamic, fullgraph=True)
    for size in ((33, 66), (4, 6), *(((2, 1024),) if name == "of pairs" else ((6, 1024), (2, 4611)))):
        x = random(*size).to(device)
        mine, theirs = x.clone(), x.clone()
        torch.testing.assert_close((compiled(mine), mine), (fn(theirs), theirs), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_scans_of_other_floats(dtype: torch.dtype, backend: str, device: torch.device) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.cumsum(-1), x.logcumsumexp(0), (x * 0.1 + 1).cumprod(-1), torch.cummax(x, -1), torch.cummin(x, 0)

    x = random(9, 50).to(device, dtype)
    wanted = fn(x.cpu())  # which rounds halves once
    torch.testing.assert_close(
        torch.utils._pytree.tree_map(torch.Tensor.cpu, jitney.compile(fn, backend=backend, fullgraph=True)(x)), wanted
    )


def positions(ids: torch.Tensor) -> torch.Tensor:
    mask = ids.ne(1).int()
    return (mask.cumsum(1).type_as(mask) * mask).long() + 1


def places_of_experts(chosen: torch.Tensor) -> torch.Tensor:
    one = F.one_hot(chosen, 8)
    return (one.cumsum(-1) * one).sum(-1) + one.cumsum(0).amax(-1)


def wrapping(x: torch.Tensor) -> Any:
    big = x * 2**28
    return big.int().cumsum(1, dtype=torch.int32), (x + 3).cumprod(1), x.to(torch.int8).cumprod(0, dtype=torch.int8)


def of_truth(x: torch.Tensor) -> Any:
    return (x > 3).cumsum(1), torch.cummax(x > 3, 1), (x > 3).cumprod(0), torch.cummin(x.to(torch.uint8), 0)


INTEGERS: dict[str, tuple[Program, tuple[int, ...]]] = {
    "positions": (positions, (5, 77)), "experts": (places_of_experts, (64,)), "wrapping": (wrapping, (9, 40)),
    "truth": (of_truth, (7, 33)),
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGERS)
def test_scans_of_integers_are_exact(name: str, backend: str, device: torch.device) -> None:
    fn, size = INTEGERS[name]
    x = torch.randint(0, 8, size, generator=torch.Generator().manual_seed(0)).to(device)
    found, wanted = jitney.compile(fn, backend=backend, fullgraph=True)(x), fn(x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dim", [0, 1])
def test_extremes_take_the_last_of_equals_and_every_nan(dim: int, backend: str, device: torch.device) -> None:
    def fn(x: torch.Tensor) -> Any:
        return torch.cummax(x, dim), torch.cummin(x, dim)

    x = torch.randint(-3, 4, (20, 21), generator=torch.Generator().manual_seed(0)).float()
    x[4, 7] = x[11, 7] = x[11, 12] = float("nan")
    x[2, 3], x[3, 3], x[5, 5], x[6, 5], x[0, :] = float("inf"), float("inf"), -0.0, 0.0, -float("inf")
    found = jitney.compile(fn, backend=backend, fullgraph=True)(x.to(device))
    torch.testing.assert_close(found, fn(x.to(device)), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", ["cumsum", "cumprod", "logcumsumexp"])
def test_infinities_and_nans_go_on_from_where_they_are(kind: str, backend: str, device: torch.device) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return getattr(x, kind)(-1)

    x = random(6, 40)
    x[0, 5], x[1, 7], x[1, 20] = float("inf"), float("-inf"), float("inf")
    x[2, 9], x[3, :12], x[4, 6], x[4, 9] = float("nan"), -float("inf"), 0.0, float("inf")
    x[5, :] = -0.0
    found, wanted = jitney.compile(fn, backend=backend, fullgraph=True)(x.to(device)).cpu(), fn(x)
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=1e-4, atol=1e-4)
    if kind == "cumsum":
        assert torch.equal(found[5].signbit(), wanted[5].signbit())


def gradient(fn: Program, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    x = x.clone().requires_grad_()
    out = fn(x)
    out.backward()
    return out.detach(), x.grad


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
def test_gradients_of_scans(dim: int, dynamic: bool, backend: str, device: torch.device) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        p = x.softmax(dim)
        return (p.cumsum(dim) * x.sigmoid()).sum() + (x.logcumsumexp(dim) * 0.1).sum() + torch.cummax(x, dim)[0].sum()

    x = random(9, 70).to(device)
    found = gradient(jitney.compile(fn, backend=backend, dynamic=dynamic, fullgraph=True), x)
    torch.testing.assert_close(found, gradient(fn, x), rtol=1e-4, atol=1e-3)


def test_a_scan_of_one_element_is_a_copy(backend: str, device: torch.device) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.cumsum(1), x.cumprod(1), *torch.cummax(x, 1), x.sum().cumsum(0), *torch.cummin(x.sum(), 0)

    x = random(5, 1).to(device)
    x[2] = -0.0
    before, compiled = x.clone(), jitney.compile(fn, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(x), fn(x), rtol=0, atol=0)
    for result in compiled(x):
        result.zero_()
    assert torch.equal(x, before)


def test_scans_of_nothing(backend: str, device: torch.device) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.cumsum(0) + 1, x.cumprod(1), torch.cummax(x, 1 if x.shape[1] else 0)

    compiled = jitney.compile(fn, backend=backend, dynamic=True)
    for size in ((3, 4), (0, 4), (1, 5), (7, 1)):
        x = random(*size).to(device)
        torch.testing.assert_close(compiled(x), fn(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_scanned_backwards(dynamic: bool, backend: str, device: torch.device) -> None:
    """Over rows of one piece and of several, some not full, with what goes the other way beside it."""

    def fn(x: torch.Tensor) -> Any:
        from_the_end = x.flip(-1).cumsum(-1).flip(-1)
        down = x.sigmoid().flip(0).cumprod(0).flip(0)
        places = torch.cummax(x.flip(-1), -1)[1].flip(-1)
        return from_the_end * x.exp(), down * x, from_the_end.argmax(-1), places, from_the_end.sum(-1), x.cumsum(-1)

    compiled = jitney.compile(fn, backend=backend, dynamic=dynamic, fullgraph=True)
    for size in ((5, 33), (3, 20000)):
        x = random(*size).to(device)
        torch.testing.assert_close(compiled(x), fn(x), rtol=1e-3, atol=1e-2)
