"""Running sums in whole programs, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney


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
    return (x - x.mean(-1, keepdim=True)).cumsum(-1).flip(-1).cumsum(-1).amax(0)


def of_pairs(x: torch.Tensor) -> torch.Tensor:
    return x.sigmoid().reshape(-1, 2).cumsum(-1).reshape(x.shape) + x.reshape(2, -1).cumsum(-1).reshape(x.shape)


FLOATS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "top p": top_p, "in place": over_its_input, "in place of a part": over_what_it_is_made_of, "twice": twice,
    "of pairs": of_pairs,
}  # fmt: skip


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_floats(name: str, dynamic: bool) -> None:
    fn = FLOATS[name]
    compiled = jitney.compile(fn, backend="llvm_cpu", dynamic=dynamic, fullgraph=True)
    for size in ((33, 66), (4, 6), (9, 1024)):
        x = torch.randn(*size, generator=torch.Generator().manual_seed(0))
        mine, theirs = x.clone(), x.clone()
        torch.testing.assert_close((compiled(mine), mine), (fn(theirs), theirs), rtol=1e-4, atol=1e-4)


def positions(ids: torch.Tensor) -> torch.Tensor:
    mask = ids.ne(1).int()
    return (mask.cumsum(1).type_as(mask) * mask).long() + 1


def places_of_experts(chosen: torch.Tensor) -> torch.Tensor:
    one = F.one_hot(chosen, 8)
    return (one.cumsum(-1) * one).sum(-1) + one.cumsum(0).amax(-1)


@pytest.mark.parametrize(("fn", "size"), [(positions, (5, 77)), (places_of_experts, (64,))])
def test_integers_are_exact(fn: Callable[..., Any], size: tuple[int, ...]) -> None:
    x = torch.randint(0, 8, size, generator=torch.Generator().manual_seed(0))
    assert torch.equal(jitney.compile(fn, backend="llvm_cpu", fullgraph=True)(x), fn(x))


def test_gradients() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x.softmax(-1).cumsum(-1) * torch.arange(70)).sum()

    found = []
    for call in (fn, jitney.compile(fn, backend="llvm_cpu", fullgraph=True)):
        x = torch.randn(9, 70, generator=torch.Generator().manual_seed(0)).requires_grad_()
        out = call(x)
        out.backward()
        found.append((out.detach(), x.grad))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


def test_a_scan_of_one_element_is_a_copy() -> None:
    x = torch.randn(5, 1)
    before = x.clone()
    jitney.compile(lambda x: x.cumsum(1), backend="llvm_cpu")(x).zero_()
    assert torch.equal(x, before)
