"""Stacks of equal and nearly equal layers beside eager, and beside layers that are compiled one by one.

A folder of tests that imports them (``from backend_repeats import *``) has the fixtures ``backend`` and ``device``.
"""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from repeated_layers import ROWS, WIDTH, Layers, Stack, Step, layers
from torch import nn

import jitney


def outcome(run: Any, module: nn.Module, made: Layers, device: torch.device) -> list[list[Any]]:
    """Results, gradients and buffers after each of some calls."""
    found = []
    for call, rows in enumerate([ROWS, ROWS + 1, ROWS + 3] if made.dynamic else [ROWS, ROWS]):
        rng = torch.Generator().manual_seed(call)
        x = torch.randn(rows, WIDTH, generator=rng, dtype=torch.float64).to(device).requires_grad_(made.trains)
        torch.manual_seed(call)
        module.zero_grad()
        with torch.set_grad_enabled(made.trains):
            results = torch.utils._pytree.tree_leaves(run(x))
        seen = [r for r in results if r.requires_grad]
        if seen and made.trains:
            sum((r.sin() * (n + 1)).sum() for n, r in enumerate(seen)).backward()  # type: ignore[union-attr]
        gradients = [None if p.grad is None else p.grad.clone() for p in [x, *module.parameters()]]
        places = [r.data_ptr() for r in results if r.numel()]
        alike = [places.index(place) for place in places]
        found.append([[r.detach().clone() for r in results], gradients, [b.clone() for b in module.buffers()], alike])
    return found


def compare(made: Layers, backend: str, device: torch.device) -> None:
    """The numbers are eager's up to rounding, and to the bit those of layers that are compiled one by one."""
    module = Stack(made).to(device)
    own = copy.deepcopy(module)
    wanted = outcome(own, own, made, device)
    found = []
    for once in (True, False):
        mine = copy.deepcopy(module)
        dynamic = True if made.dynamic else None
        compiled = jitney.compile(mine, backend=backend, dynamic=dynamic, options={"layers_once": once})
        found.append(outcome(compiled, mine, made, device))
    torch.testing.assert_close(found[0], wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0, equal_nan=True)


@settings(
    max_examples=int(os.environ.get("JITNEY_TEST_EXAMPLES", "12")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(made=layers())
def test_generated_layers(made: Layers, backend: str, device: torch.device) -> None:
    compare(made, backend, device)


def stack(*steps: Step, kept: tuple[int, ...] = (-1,), shown: int = 0, trains: bool = False, **rest: Any) -> Layers:
    """A stack of 12 layers of one value, unless told otherwise."""
    states = len(kept)
    last = states + len(steps) - 1
    plain: dict[str, Any] = {"depth": 12, "weights": "own", "results": "none", "oddity": "none", "odd": 10}
    flags = {"buffer": False, "dynamic": False, "trains": trains}
    own = tuple(last if n < 0 else n for n in kept)
    return Layers(states=states, steps=steps, kept=own, shown=shown, **plain | flags | rest)


# What once gave other numbers, or was in danger of it.
KNOWN: dict[str, Layers] = {
    "parts of what the last layer made": stack(Step("stack", 0, 1, 0), Step("product", 2, 2, 0), kept=(1, -1), depth=9),
    "a constant that each layer returns": stack(
        Step("tanh", 0, 0, 0), Step("a constant alone", 0, 0, 0), Step("mean of two", 1, 2, 0), results="list", shown=2
    ),  # fmt: skip
    "random numbers": stack(Step("product", 0, 0, 0), Step("dropout", 1, 1, 0), trains=True),
    "parts written in place": stack(Step("parts written", 0, 0, 0), Step("product", 1, 1, 0), trains=True),
    "buffers written in place": stack(Step("product", 0, 0, 0), buffer=True),
    "numbers of each layer": stack(Step("product", 0, 0, 0), Step("tanh", 1, 1, 0), oddity="a number of each"),
    "one other dtype": stack(Step("product", 0, 0, 0), Step("tanh", 1, 1, 0), oddity="one dtype", trains=True),
    "sizes that change": stack(Step("norm", 0, 0, 0), Step("product", 1, 1, 1), dynamic=True, trains=True),
    "results and inputs": stack(Step("product", 0, 0, 0), results="inputs too", shown=1),
}


@pytest.mark.parametrize("name", [*KNOWN])
def test_known_layers(name: str, backend: str, device: torch.device) -> None:
    compare(KNOWN[name], backend, device)
