"""Training steps with a gradient scaler: what overflows is left out while the graph runs, as in eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import jitney
from jitney import events

Make = Callable[[Any], torch.optim.Optimizer]
OVERFLOWS = (3, 6)

OPTIMIZERS: dict[str, Make] = {
    "AdamW": lambda p: torch.optim.AdamW(p, 0.01),
    "AdamW, foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "RAdam": lambda p: torch.optim.RAdam(p, 0.01),
}


class Counting(torch.optim.SGD):
    """Counts its steps in Python."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step."""
        super().step()
        self.steps = getattr(self, "steps", 0) + 1


def trained(backend: str | None, make: Make, fullgraph: bool = False, **options: bool) -> dict[str, Any]:
    """All that ten steps leave behind."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = make(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    schedules = options.get("schedules", False)  # a schedule notes whether the optimizer has ever stepped
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5) if schedules else None

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.get("autocast", False)):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if options.get("clips", False):
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        if scheduler is not None:
            scheduler.step()
        return loss.detach()

    run = jitney.compile(step, backend=backend, fullgraph=fullgraph) if backend else step
    draw = torch.Generator().manual_seed(1)
    losses = []
    for number in range(10):
        x, y = torch.randn(6, 4, generator=draw), torch.randint(3, (6,), generator=draw)
        if number in OVERFLOWS:
            x[0, 0] = math.inf
        losses.append(run(x, y))
    return {
        "losses": losses,
        "parameters": list(model.parameters()),
        "gradients": [p.grad for p in model.parameters()],
        "state": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
        "schedule": None if scheduler is None else scheduler.get_last_lr(),
        "counted": getattr(optimizer, "steps", None),
    }


def same(backend: str, make: Make, fullgraph: bool = False, **options: bool) -> list[Any]:
    """Compare with eager; the graph breaks."""
    told: list[Any] = []
    kinds = (events.GraphBreak, events.GraphKept)
    with events.listen(lambda e: told.append(e.reason) if isinstance(e, kinds) else None):
        found = trained(backend, make, fullgraph, **options)
    close = {"eager": 0.0, "aot_eager": 1e-6}.get(backend, 1e-4)
    slack = {"rtol": close, "atol": close / 10}
    torch.testing.assert_close(found, trained(None, make, **options), equal_nan=True, **slack)
    return told


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_that_overflow_are_left_out(name: str, backend: str) -> None:
    told = same(backend, OPTIMIZERS[name], clips=True)
    assert len(told) <= 1  # where the first step makes the state


@pytest.mark.parametrize("options", [{"autocast": True, "clips": True}, {"schedules": True}, {}], ids=str)
def test_beside_autocast_and_schedules(options: dict[str, bool]) -> None:
    assert len(same("aot_eager", OPTIMIZERS["AdamW"], **options)) <= 1


@pytest.mark.parametrize("name", ["SGD", "AdamW, fused"])
def test_without_state_of_its_own_the_step_is_whole(name: str) -> None:
    assert same("aot_eager", OPTIMIZERS[name], fullgraph=True, clips=True) == []


def test_what_a_step_does_in_python_is_a_graph_break() -> None:
    assert same("eager", lambda p: Counting(p, 0.1))


def test_a_first_step_that_makes_state_is_an_error_under_fullgraph() -> None:
    with pytest.raises(jitney.errors.Unsupported, match=r"GradScaler\.step decides by the gradients' values"):
        trained("eager", OPTIMIZERS["AdamW"], fullgraph=True)
