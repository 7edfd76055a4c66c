"""Operators that raise after writes: what eager has written and drawn by then is written and drawn, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn

BAD = -torch.eye(3)
INDEX = torch.tensor([7])


def decomposed(x: torch.Tensor, bad: torch.Tensor) -> Any:
    x.mul_(2)
    return torch.linalg.cholesky(bad)


def between(x: torch.Tensor, bad: torch.Tensor) -> Any:
    x.mul_(2)
    y = torch.linalg.inv(bad * 0)
    x.add_(y.sum())
    return y


def drawn(x: torch.Tensor, bad: torch.Tensor) -> Any:
    x.add_(torch.rand(3))
    y = torch.linalg.cholesky(bad)
    return torch.rand(3) + y


def indexed(x: torch.Tensor, bad: torch.Tensor) -> Any:
    x.mul_(2)
    return x[INDEX + bad.int().sum().abs()]


def normed(x: torch.Tensor, bad: torch.Tensor) -> Any:
    mean, var = x, torch.ones(3)
    y = torch.nn.functional.batch_norm(torch.arange(12.0).reshape(4, 3), mean, var, training=True)
    return y @ torch.linalg.cholesky(bad)


def of_lists(x: torch.Tensor, bad: torch.Tensor) -> Any:
    torch._foreach_mul_([x], [3.0])
    torch._foreach_add_([*x.split(1)], 1)
    return torch.linalg.cholesky(bad)


def fused(x: torch.Tensor, bad: torch.Tensor) -> Any:
    settings: dict[str, Any] = {"weight_decay": 0.0, "momentum": 0.0, "lr": 0.1, "dampening": 0.0, "nesterov": False}
    torch._fused_sgd_([x], [torch.ones(3)], [], maximize=False, is_first_step=True, **settings)
    return torch.linalg.cholesky(bad)


def drawn_beside_a_mask(x: torch.Tensor, bad: torch.Tensor) -> Any:
    x.add_(torch.native_dropout(torch.ones(64), 0.5, True)[0].sum())
    return torch.linalg.cholesky(bad)


def drawn_with_noise(x: torch.Tensor, bad: torch.Tensor) -> Any:
    x.add_(torch.nn.functional.rrelu(-torch.ones(64), training=True).sum())
    return torch.linalg.cholesky(bad)


LISTS = [of_lists, fused, drawn_beside_a_mask, drawn_with_noise]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("fn", [decomposed, between, drawn, indexed, normed, *LISTS])
def test_writes_before_the_error_are_eagers(fn: Callable[..., Any], trains: bool, backend: str) -> None:
    found = []
    for run in (fn, compile_fn(fn, backend=backend), compile_fn(fn, backend=backend, dynamic=True)):
        torch.manual_seed(3)
        x, bad = torch.ones(3), BAD.clone().requires_grad_(trains and fn is not indexed)
        for _ in range(2):
            with pytest.raises((RuntimeError, IndexError)) as caught:
                run(x, bad)
        found.append((x, torch.rand(2), type(caught.value), str(caught.value)))
    for x, after, kind, text in found[1:]:
        torch.testing.assert_close(x, found[0][0])
        assert torch.equal(after, found[0][1]) and (kind, text) == found[0][2:]
