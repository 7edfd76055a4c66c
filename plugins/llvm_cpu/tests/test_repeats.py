"""Models of many equal layers: the numbers are those of layers that are compiled one by one, and code does not grow."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys

import pytest
import torch
from backend_repeats import *  # noqa: F403
from torch import nn

import jitney
from jitney_llvm_cpu.launch import Native

DEPTH = 10


class Block(nn.Module):
    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.norm, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.drop = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.into(self.norm(x)).split(width, 2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.wide(self.after(x)))


def stack(depth: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(depth)), nn.LayerNorm(16), nn.Linear(16, 5))


def images(depth: int) -> nn.Module:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(*blocks, nn.AvgPool2d(2))


MODELS = {"transformer": (stack, (2, 8, 16)), "convolutions": (images, (2, 4, 8, 8))}


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
@pytest.mark.parametrize("name", [*MODELS])
def test_to_the_bit(name: str, trains: bool) -> None:
    make, size = MODELS[name]
    model, x = make(DEPTH), torch.randn(*size)
    once = outcome(model, x, trains)
    assert all(torch.equal(a, b) for a, b in zip(once, outcome(model, x, trains, False), strict=True))
    if not trains:
        torch.testing.assert_close(once[0], model.eval()(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_code_does_not_grow(trains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    text_of = Native.text

    def text(self: Native) -> str:
        texts.append(text_of(self))
        return texts[-1]

    monkeypatch.setattr(Native, "text", text)
    found = []
    for depth in (DEPTH, 2 * DEPTH):
        texts.clear()
        outcome(stack(depth), torch.randn(2, 8, 16), trains)
        found.append([len(re.findall(r"^define internal .*@(?:kernel|call)\d+\(", t, re.MULTILINE)) for t in texts])
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
