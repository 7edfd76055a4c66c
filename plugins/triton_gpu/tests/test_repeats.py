"""Models of many equal layers: the numbers are those of layers that are compiled one by one, and code does not grow."""

from __future__ import annotations

import pytest
import torch
from backend_repeats import *  # noqa: F403
from torch import nn

import jitney
from jitney_triton_gpu.code import Function


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_code_does_not_grow(trains: bool, device: torch.device, compiled_functions: list[Function]) -> None:
    found = []
    for depth in (10, 20):  # larger than what is summed for all layers at once
        compiled_functions.clear()
        layers = (nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU()) for _ in range(depth))
        model = nn.Sequential(*layers).to(device)
        with torch.set_grad_enabled(trains):
            result = jitney.compile(model, backend="triton_gpu", fullgraph=True)(torch.randn(64, 64, device=device))
        if trains:
            result.sum().backward()
        found.append(len(compiled_functions))
    assert found[0] == found[1] > 0
