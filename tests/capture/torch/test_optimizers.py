"""torch's optimizers, their step captured whole: one graph, eager's numbers to the last bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe
from torch import nn, optim

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, 0.1),
    "SGD momentum nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "SGD foreach": lambda p: optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "Adam": lambda p: optim.Adam(p, 0.01),
    "Adam amsgrad": lambda p: optim.Adam(p, 0.01, amsgrad=True, weight_decay=0.1, maximize=True),
    "Adam foreach": lambda p: optim.Adam(p, 0.01, foreach=True),
    "Adam tensor lr": lambda p: optim.Adam(p, torch.tensor(0.01)),
    "AdamW": lambda p: optim.AdamW(p, 0.01),
    "AdamW foreach": lambda p: optim.AdamW(p, 0.01, foreach=True),
    "Adagrad": lambda p: optim.Adagrad(p, 0.01, lr_decay=0.1),
    "Adagrad foreach": lambda p: optim.Adagrad(p, 0.01, foreach=True),
    "RMSprop": lambda p: optim.RMSprop(p, 0.01, momentum=0.9, centered=True),
    "RMSprop foreach": lambda p: optim.RMSprop(p, 0.01, foreach=True),
    "NAdam": lambda p: optim.NAdam(p, 0.01),
    "Adamax": lambda p: optim.Adamax(p, 0.01),
}


def train(make: Callable[[Any], optim.Optimizer], step_of: Callable[[optim.Optimizer], Any]) -> tuple[Any, Any]:
    """Parameters and optimizer state after six steps under a schedule that changes the rate at each."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    optimizer = make(model.parameters())
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    step = step_of(optimizer)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).pow(2).mean().backward()
        step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the schedule looks for its own wrapper of `step`
            schedule.step()
    return [p.detach() for p in model.parameters()], optimizer.state_dict()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_step_is_one_graph_with_eager_numbers(name: str, backend: str) -> None:
    make = OPTIMIZERS[name]
    wanted = train(make, lambda optimizer: optimizer.step)
    with observe() as seen:
        got = train(make, lambda optimizer: compile_fn(optimizer.step, backend=backend))
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    assert not seen.breaks and not seen.skips and not seen.kept
    # Once without state, once with it and with a rate that changes: not again for each rate.
    assert len(seen.graphs) == 2


def test_a_closure_and_two_groups() -> None:
    def run(wrap: Callable[[Any], Any]) -> list[torch.Tensor]:
        torch.manual_seed(1)
        a, b = nn.Linear(3, 3), nn.Linear(3, 1)
        optimizer = optim.AdamW([{"params": a.parameters(), "lr": 0.1}, {"params": b.parameters()}], lr=0.01)
        step = wrap(optimizer.step)
        x = torch.randn(5, 3)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = b(a(x).relu()).pow(2).sum()
            loss.backward()
            return loss

        losses = [step(closure).detach() for _ in range(4)]
        return [*losses, *(p.detach() for p in (*a.parameters(), *b.parameters()))]

    torch.testing.assert_close(run(compile_fn), run(lambda step: step), rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_whole_training_step(backend: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> Any:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
        optimizer = optim.Adam(model.parameters(), 0.01)

        def train_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = wrap(train_step)
        losses = [step(torch.randn(6, 4), torch.randn(6, 1)) for _ in range(5)]
        return losses, model.state_dict()

    wanted = run(lambda step: step)
    with observe() as seen:
        got = run(lambda step: compile_fn(step, backend=backend))
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-7)
    assert not seen.breaks and not seen.skips and not seen.kept
    assert len(seen.graphs) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [optim.RAdam, optim.ASGD, optim.Rprop, optim.Adadelta, optim.Adafactor])
def test_other_optimizers_have_eager_numbers(make: Any, backend: str) -> None:
    results = []
    for wrap in (lambda step: step, lambda step: compile_fn(step, backend=backend)):
        parameter = nn.Parameter(torch.ones(3, 2))
        step = wrap(make([parameter]).step)
        for i in range(8):
            parameter.grad = torch.full((3, 2), float(i + 1))
            step()
        results.append(parameter.detach())
    assert torch.equal(*results)


def test_a_foreach_step_is_seen_by_the_version_counter() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = optim.SGD([parameter], 0.5, foreach=True)
    parameter.grad = torch.ones(3)
    loss = (parameter * parameter).sum()
    compile_fn(optimizer.step, backend="aot_eager")()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def one_cycle(make: Callable[[Any], optim.Optimizer], step_of: Callable[[optim.Optimizer], Any]) -> list[torch.Tensor]:
    """The parameters after six steps under a schedule that changes rate and momentum (Adam's first beta) at each."""
    torch.manual_seed(3)
    parameters = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3))]
    optimizer = make(parameters)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
    step = step_of(optimizer)
    for _ in range(6):
        for p in parameters:
            p.grad = torch.randn_like(p)
        step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the schedule looks for its own wrapper of `step`
            schedule.step()
    return [p.detach() for p in parameters]


@pytest.mark.parametrize("name", ["Adam", "AdamW foreach", "NAdam", "SGD momentum nesterov"])
def test_a_momentum_that_changes_at_each_step_compiles_once_more(name: str) -> None:
    make = OPTIMIZERS[name]
    wanted = one_cycle(make, lambda optimizer: optimizer.step)
    with observe() as seen:
        got = one_cycle(make, lambda optimizer: compile_fn(optimizer.step, backend="aot_eager"))
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    assert not seen.breaks and not seen.skips and len(seen.graphs) == 2


WHOLE: dict[str, Callable[[Any], optim.Optimizer]] = {
    "Adafactor": lambda p: optim.Adafactor(p, 0.01),
    "Adadelta foreach": lambda p: optim.Adadelta(p, 0.01, foreach=True),
    "Rprop": lambda p: optim.Rprop(p, 0.01),
    "Rprop foreach": lambda p: optim.Rprop(p, 0.01, foreach=True),
    "Adamax foreach": lambda p: optim.Adamax(p, 0.01, foreach=True),
    **{name: OPTIMIZERS[name] for name in ("SGD momentum nesterov", "Adam amsgrad", "AdamW foreach", "NAdam")},
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", WHOLE)
def test_step_and_backward_are_one_graph(name: str, backend: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> Any:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
        optimizer = WHOLE[name](model.parameters())

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = wrap(step)
        return [step(torch.randn(3, 4)) for _ in range(6)], model.state_dict(), optimizer.state_dict()

    wanted = run(lambda step: step)
    with observe() as seen:
        got = run(lambda step: compile_fn(step, backend=backend, fullgraph=True))
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    assert not seen.kept and len(seen.graphs) == 2
