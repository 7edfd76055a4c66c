"""What training programs in tests are made of, and how they are compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from helpers import observe
from torch import nn, optim

import jitney

Step = Callable[..., Any]


@dataclass
class Training:
    """A step, what it is called with at each time, and what it changes."""

    step: Step
    batch: Callable[[], tuple[Any, ...]]
    modules: list[nn.Module] = field(default_factory=list)
    optimizers: list[optim.Optimizer] = field(default_factory=list)
    graphs: int = 2  # without the optimizer's state, and with it
    breaks: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # why ATen graphs cannot hold it


def mlp(*sizes: int, act: Any = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def pair(n: int = 6, size: int = 4, classes: int = 3) -> Any:
    return lambda: (torch.randn(n, size), torch.randint(classes, (n,)))


def told(training: Training, results: list[Any]) -> Any:
    """Everything that the steps have left behind."""
    parameters = [p for m in training.modules for p in m.parameters()]
    return {
        "results": [r.detach() if isinstance(r, torch.Tensor) else r for r in results],
        "requires grad": [getattr(r, "requires_grad", None) for r in results],
        "modules": [m.state_dict() for m in training.modules],
        "gradients": [p.grad for p in parameters],
        "layouts": [None if p.grad is None else (p.grad.stride(), p.grad.is_leaf) for p in parameters],
        "optimizers": [o.state_dict() for o in training.optimizers],
        "random": torch.get_rng_state(),
    }


def run(make: Callable[[], Training], wrap: Callable[[Step], Step], steps: int = 20) -> tuple[Training, Any]:
    torch.manual_seed(0)
    training = make()
    step = wrap(training.step)
    results = [step(*training.batch()) for _ in range(steps)]
    return training, told(training, results)


def check(make: Callable[[], Training], backend: str, steps: int = 20) -> None:
    """Compare what the steps leave behind with eager's; count graphs and breaks."""
    training, wanted = run(make, lambda step: step, steps)
    whole = not training.breaks
    with observe() as seen:
        _, got = run(make, lambda step: jitney.compile(step, backend=backend, fullgraph=whole), steps)
    close = {"eager": 0.0, "aot_eager": 1e-5}.get(backend, 1e-4)
    torch.testing.assert_close(got, wanted, rtol=close, atol=close, equal_nan=True)
    assert {reason.split(" (at ")[0] for reason in seen.breaks} == set(training.breaks)
    assert not seen.skips
    assert set(seen.kept) == (set() if backend == "eager" else set(training.kept))
    assert training.breaks or len(seen.graphs) == training.graphs, len(seen.graphs)
