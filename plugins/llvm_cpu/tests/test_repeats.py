"""Models of many equal layers: the numbers are those of layers that are compiled one by one, and code does not grow."""

from __future__ import annotations

import copy
import functools
import os
import subprocess
import sys

import pytest
import torch
from backend_repeats import *  # noqa: F403
from layer_stacks import DEPTH, MODELS, functions_by_depth, stack
from torch import nn

import jitney


def outcome(model: nn.Module, x: torch.Tensor, trains: bool, once: bool = True) -> list[torch.Tensor]:
    """Results and gradients of a compiled model, twice."""
    own = copy.deepcopy(model).train(trains)
    compiled = jitney.compile(own, backend="llvm_cpu", fullgraph=True, options={"layers_once": once})
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        with torch.set_grad_enabled(trains):
            result = compiled(x)
        found.append(result.detach())
        if trains:
            result.sin().sum().backward()
            found += [p.grad.clone() for p in compiled.parameters() if p.grad is not None]
    return found


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", ["transformer", "convolutions"])
def test_to_the_bit(name: str, trains: bool) -> None:
    make, size = {**MODELS, "transformer": (functools.partial(stack, dropout=0.2), (2, 8, 16))}[name]
    model, x = make(DEPTH), torch.randn(*size)
    once = outcome(model, x, trains)
    assert all(torch.equal(a, b) for a, b in zip(once, outcome(model, x, trains, False), strict=True))
    if not trains:
        torch.testing.assert_close(once[0], model.eval()(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_code_does_not_grow(trains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = functions_by_depth(lambda depth: outcome(stack(depth), torch.randn(2, 8, 16), trains), monkeypatch)
    assert found[0] == found[1] and len(found[0]) == 1 + trains


PROGRAM = """
import torch, jitney, jitney_lowering.wrapper as wrapper
from torch import nn
made = wrapper.Wrapper.build
def build(self):
    run = made(self)
    print(self.source)
    return run
wrapper.Wrapper.build = build
model = nn.Sequential(*(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(10)))
with jitney.config.patch(cache=False):
    jitney.compile(model, backend="llvm_cpu", fullgraph=True)(torch.ones(4, 8)).sum().backward()
"""


def test_code_is_the_same_in_each_process() -> None:
    """Whatever the hashes of strings are: what is on disk is found again."""
    texts = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = [sys.executable, "-c", PROGRAM]
        texts.append(subprocess.run(run, capture_output=True, text=True, check=True, env=environment).stdout)
    assert texts[0] == texts[1] != ""
