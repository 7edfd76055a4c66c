"""Optimizers of the program's beside a gradient scaler: a step that is left out leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import jitney


def through_data(p: torch.Tensor) -> None:
    assert p.grad is not None
    p.data.add_(p.grad.data, alpha=-0.1)


def with_noise(p: torch.Tensor) -> None:
    assert p.grad is not None
    with torch.no_grad():
        p.sub_(0.1 * (p.grad + torch.randn_like(p)))


def that_raises(p: torch.Tensor) -> None:
    assert p.grad is not None
    with torch.no_grad():
        p.sub_(torch.linalg.cholesky(p.grad.t() @ p.grad + torch.eye(3)) * 0.01)


class Stranger(torch.optim.Optimizer):
    def __init__(self, parameters: Any, update: Callable[[torch.Tensor], None]) -> None:
        super().__init__(parameters, {})
        self.update = update

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                self.update(p)


@pytest.mark.parametrize("update", [through_data, with_noise, that_raises])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_step_that_is_left_out_leaves_no_trace(update: Callable[[torch.Tensor], None], backend: str) -> None:
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 3, bias=False)
        optimizer, scaler = Stranger(model.parameters(), update), torch.amp.GradScaler("cpu")

        def step(x: torch.Tensor) -> None:
            optimizer.zero_grad()  # noqa: B023
            scaler.scale(model(x).square().mean()).backward()  # noqa: B023
            scaler.step(optimizer)  # noqa: B023
            scaler.update()  # noqa: B023

        run = jitney.compile(step, backend=backend) if compiled else step
        for value in (1.0, 1.0, float("inf"), 1.0):
            run(torch.full((2, 3), value))
        results.append((model.weight.detach(), scaler.get_scale(), torch.rand(1)))
    torch.testing.assert_close(*results)


def by_hook(optimizer: torch.optim.Optimizer, count: Callable[..., None]) -> Any:
    return optimizer.register_step_post_hook(count)


def by_hook_of_all(optimizer: torch.optim.Optimizer, count: Callable[..., None]) -> Any:
    return register_optimizer_step_post_hook(count)


def by_another_step(optimizer: torch.optim.Optimizer, count: Callable[..., None]) -> Any:
    def step(*args: Any) -> None:
        for group in optimizer.param_groups:
            for p in group["params"]:
                through_data(p)

    optimizer.step = step  # type: ignore[method-assign]


@pytest.mark.parametrize("add", [by_hook, by_hook_of_all, by_another_step])
def test_what_the_program_adds_to_a_step_may_do_anything(add: Callable[..., Any]) -> None:
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
        steps = torch.zeros(())

        def count(*given: Any) -> None:
            steps.data.add_(1)  # noqa: B023

        handle = add(optimizer, count)

        def step(x: torch.Tensor) -> None:
            optimizer.zero_grad()  # noqa: B023
            scaler.scale(model(x).square().mean()).backward()  # noqa: B023
            scaler.step(optimizer)  # noqa: B023
            scaler.update()  # noqa: B023

        run = jitney.compile(step, backend="aot_eager") if compiled else step
        for value in (1.0, 1.0, float("inf"), 1.0):
            run(torch.full((2, 3), value))
        results.append((model.weight.detach(), steps, scaler.get_scale()))
        if handle is not None:
            handle.remove()
    torch.testing.assert_close(*results)
