"""Models of many equal layers: the native code is that of one, and a table of steps."""

from __future__ import annotations

import copy

import pytest
import torch
from layer_stacks import DEPTH, MODELS, functions_by_depth, stack
from torch import nn

import jitney

LAYER_BY_LAYER = {"layers_once": False}  # the table is of what is lowered


def outcome(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """A result, and gradients if the model trains."""
    model.zero_grad()
    with torch.set_grad_enabled(model.training):
        result = model(x)
    if not model.training:
        return [result]
    result.sin().sum().backward()
    return [result.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", [*MODELS])
def test_numbers(name: str, trains: bool) -> None:
    make, size = MODELS[name]
    model, x = make(DEPTH).train(trains).double(), torch.randn(*size).double()
    compiled = jitney.compile(copy.deepcopy(model), backend="llvm_cpu", fullgraph=True, options=LAYER_BY_LAYER)
    for _ in range(2):
        torch.testing.assert_close(outcome(compiled, x), outcome(model, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_code_does_not_grow(trains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(depth: int) -> None:
        compiled = jitney.compile(
            stack(depth).train(trains), backend="llvm_cpu", fullgraph=True, options=LAYER_BY_LAYER
        )
        outcome(compiled, torch.randn(2, 8, 16))

    found = functions_by_depth(run, monkeypatch)
    assert found[0] == found[1] and len(found[0]) == 1 + trains
