"""Branches on tensors of one number that the host has: the way is known before the graph runs, and guarded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import observe
from torch import nn, optim
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import jitney

Wrap = Callable[[Any], Any]


def both(story: Callable[[Wrap], Any], *, whole: bool = True, backend: str = "aot_eager") -> Any:
    """Compare a story with eager; what was seen while it ran compiled."""
    torch.manual_seed(0)
    wanted = story(lambda fn: fn)
    torch.manual_seed(0)
    with observe() as seen:
        got = story(lambda fn: jitney.compile(fn, backend=backend, fullgraph=whole))
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
    return seen


class Normed(nn.Module):
    """Statistics of the first batch, as of ActNorm (arXiv 1807.03039), and something at every third step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("initialised", torch.tensor(False))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.initialised:
            self.mean.copy_(x.mean(0))
            self.initialised.fill_(True)
        self.steps += 1
        if self.steps % 3 == 0:
            self.mean.mul_(0.5)
        return (x - self.mean) * self.weight


def test_flags_and_counters_of_a_module() -> None:
    def story(wrap: Wrap) -> Any:
        module = Normed()
        optimizer = optim.Adam(module.parameters(), 0.01)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run, losses = wrap(step), []
        for i in range(10):
            if i == 5:
                module.initialised.fill_(False)
            if i == 7:
                module.steps = torch.tensor(2)
            losses.append(run(torch.randn(4, 3)))
        return losses, module.state_dict()

    assert len(both(story).graphs) == 4  # the first batch, without the state and with it; a step, a third step


@pytest.mark.parametrize("average", [None, get_ema_multi_avg_fn(0.9)])
def test_a_moving_average_of_the_weights(average: Any) -> None:
    def story(wrap: Wrap) -> Any:
        module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
        optimizer = optim.SGD(module.parameters(), 0.1)
        averaged = AveragedModel(module, multi_avg_fn=average, use_buffers=True)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            optimizer.step()
            averaged.update_parameters(module)
            return loss.detach()

        run = wrap(step)
        return [run(torch.randn(5, 4)) for _ in range(5)], averaged.state_dict()

    assert len(both(story).graphs) == 2


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, math.nan, 2, True, False])
def test_truth_and_comparisons(number: Any) -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        chosen = 1 if n else 2
        return x * chosen, not n, bool(n), n == 1 and 3, [k for k in (1, 2) if n != 2], x + (n > 0.5 or 5)

    both(lambda wrap: wrap(fn)(torch.ones(2), torch.tensor(number)), whole=False)


def test_what_the_frame_has_written_before() -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        n.add_(1)
        if n > 3:
            x = x + 10
        n.mul_(2)
        return x, n == 4

    def story(wrap: Wrap) -> Any:
        run = wrap(fn)
        return [run(torch.ones(2), torch.tensor(float(v))) for v in (1, 2, 3, 4, 2.5)]

    assert len(both(story).graphs) == 2


def test_writes_through_other_tensors_are_a_graph_break() -> None:
    def fn(x: torch.Tensor, n: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        whole.add_(1)
        return x * 2 if n > 1 else x

    def story(wrap: Wrap) -> Any:
        run, results = wrap(fn), []
        for value in (0.0, 1.0, 2.0):
            whole = torch.full((2,), value)
            results.append(run(torch.ones(2), whole[0], whole))
        return results

    seen = both(story, whole=False)
    assert any("needs the values of a tensor" in reason for reason in seen.breaks)


def of_numpy(wrap: Wrap) -> Any:
    number = torch.zeros(1)
    array = number.numpy()

    def fn(x: torch.Tensor) -> torch.Tensor:
        array[0] += 1
        return x + 1 if number > 2 else x - 1

    run = wrap(fn)
    return [run(torch.ones(2)) for _ in range(5)], number


def of_numpy_later(wrap: Wrap) -> Any:
    number, held = torch.zeros(1), {"array": np.zeros(1, np.float32)}

    def fn(x: torch.Tensor) -> torch.Tensor:
        held["array"][0] += 1
        return x + 1 if number > 0 else x - 1

    run = wrap(fn)
    first = run(torch.ones(2))
    held["array"] = number.numpy()
    return first, run(torch.ones(2)), number


def of_a_view_later(wrap: Wrap) -> Any:
    def fn(x: torch.Tensor, n: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        whole.add_(1)
        return x * 2 if n > 0 else x

    run, whole = wrap(fn), torch.zeros(2)
    return run(torch.ones(2), torch.tensor(0.0), torch.zeros(2)), run(torch.ones(2), whole[1], whole)


def read_of_a_view_later(wrap: Wrap) -> Any:
    def fn(x: torch.Tensor, n: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        whole.data.add_(1)
        return x * 2 if n.item() > 0 else x

    run, whole = wrap(fn), torch.zeros(2)
    return run(torch.ones(2), torch.tensor(0.0), torch.zeros(2)), run(torch.ones(2), whole[1], whole)


@pytest.mark.parametrize("story", [of_numpy, of_numpy_later, of_a_view_later, read_of_a_view_later])
def test_memory_that_is_shared_with_what_is_written_to(story: Callable[[Wrap], Any]) -> None:
    both(story, whole=False)
    with jitney.config.patch(capture_scalar_outputs=True):
        both(story, whole=False)


def test_what_is_computed_of_many_numbers_is_a_graph_break() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 1 else x

    seen = both(lambda wrap: [wrap(fn)(torch.full((65,), v)) for v in (0.001, 3.0)], whole=False)
    assert any("needs the values of a tensor" in reason for reason in seen.breaks)


class Plain(optim.Optimizer):
    """Momentum as packages of optimizers write it, with a way of its own where it is compiled."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["step"], state["mean"] = torch.tensor(0.0), torch.zeros_like(p)
            state["step"] += 1
            state["mean"].lerp_(p.grad, 0.1)
            step = number(state["step"])
            p.add_(state["mean"], alpha=-self.param_groups[0]["lr"] / (1 - 0.9**step))


def number(step: torch.Tensor) -> Any:
    return step if torch.compiler.is_compiling() else step.item()


def test_optimizers_of_others_have_eagers_numbers() -> None:
    def story(wrap: Wrap) -> Any:
        module = nn.Linear(4, 3)
        optimizer = Plain(module.parameters())

        def step(x: torch.Tensor) -> None:
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()

        run = wrap(step)
        for _ in range(5):
            run(torch.randn(5, 4))
        return module.state_dict(), optimizer.state_dict()

    torch.manual_seed(0)
    wanted = story(lambda fn: fn)
    torch.manual_seed(0)
    with observe() as seen:
        got = story(lambda fn: jitney.compile(fn, backend="eager"))
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    assert len(seen.graphs) == 2 and not seen.breaks
