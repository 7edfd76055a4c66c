"""Learning-rate schedules within a whole training step: eager's rates, and no new graph for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capture.torch.training import Training, check, mlp, pair
from helpers import observe
from torch import optim
from torch.optim import lr_scheduler, swa_utils

import jitney

Optimizer = optim.Optimizer
Schedule = Callable[[Optimizer], Any]

# Each with how many graphs 20 steps are: without the optimizer's state, with it, and one for each other way through it.
SCHEDULES: dict[str, tuple[Schedule, int]] = {
    "lambda": (lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.95**epoch), 2),
    "warm-up by hand": (lambda o: lr_scheduler.LambdaLR(o, lambda epoch: min(1.0, (epoch + 1) / 5)), 3),
    "multiplied": (lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.95), 2),
    "steps": (lambda o: lr_scheduler.StepLR(o, 3, 0.5), 5),
    "milestones": (lambda o: lr_scheduler.MultiStepLR(o, [3, 9], 0.5), 5),
    "constant": (lambda o: lr_scheduler.ConstantLR(o, 0.5, 4), 4),
    "linear": (lambda o: lr_scheduler.LinearLR(o, 0.1, 1.0, 6), 3),
    "exponential": (lambda o: lr_scheduler.ExponentialLR(o, 0.9), 2),
    "polynomial": (lambda o: lr_scheduler.PolynomialLR(o, 8, 2.0), 4),
    "cosine": (lambda o: lr_scheduler.CosineAnnealingLR(o, 7), 3),
    "warm restarts": (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4, 2), 6),
    "cycles": (lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, 3), 3),
    "falling cycles": (lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, 3, mode="triangular2"), 3),
    "one cycle": (lambda o: lr_scheduler.OneCycleLR(o, 0.2, 25), 3),
    "three phases": (lambda o: lr_scheduler.OneCycleLR(o, 0.2, 25, anneal_strategy="linear", three_phase=True), 4),
    "chained": (
        lambda o: lr_scheduler.ChainedScheduler([
            lr_scheduler.ConstantLR(o, 0.1, 3), lr_scheduler.ExponentialLR(o, 0.9)]), 3),
    "one after the other": (
        lambda o: lr_scheduler.SequentialLR(o, [
            lr_scheduler.LinearLR(o, 0.1, 1.0, 4), lr_scheduler.ExponentialLR(o, 0.9)], [4]), 5),
    "averaged": (lambda o: swa_utils.SWALR(o, 0.01, anneal_epochs=4), 4),
}  # fmt: skip


def scheduled(schedule: Schedule) -> Training:
    model = mlp(4, 6, 3)
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scheduler = schedule(optimizer)

    def step(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, float, float]:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach(), scheduler.get_last_lr()[0], optimizer.param_groups[0]["momentum"]

    return Training(step, pair(), [model], [optimizer])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_eagers(name: str, backend: str) -> None:
    schedule, graphs = SCHEDULES[name]

    def training() -> Training:
        made = scheduled(schedule)
        made.graphs = graphs
        return made

    check(training, backend)


def test_a_plateau_is_seen_outside() -> None:
    """Whether the loss goes down is decided by its value, so by the program, between two steps."""
    ends = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = mlp(4, 6, 3)
        optimizer = optim.SGD(model.parameters(), 0.1)
        plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()  # noqa: B023
            loss = F.cross_entropy(model(x), y)  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023
            return loss.detach()

        run = jitney.compile(step, backend="aot_eager", fullgraph=True) if compiled else step
        rates = []
        with observe() as seen:
            for _ in range(12):
                plateau.step(run(*pair()()))
                rates.append(optimizer.param_groups[0]["lr"])
        ends.append((rates, model.state_dict()))
    assert ends[0][0][-1] < 0.1
    assert len(seen.graphs) == 2  # one for the first rate, one for all others
    torch.testing.assert_close(*ends)
