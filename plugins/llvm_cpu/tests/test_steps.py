"""Models of many equal layers: the native code is that of one, and a table of steps."""

from __future__ import annotations

import copy
import re

import pytest
import torch
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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.into(self.norm(x)).split(width, 2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.wide(self.after(x))


def stack(depth: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(depth)), nn.LayerNorm(16), nn.Linear(16, 5))


def images(depth: int) -> nn.Module:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(*blocks, nn.AvgPool2d(2))


MODELS = {"transformer": (stack, (2, 8, 16)), "convolutions": (images, (2, 4, 8, 8))}


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
    compiled = jitney.compile(copy.deepcopy(model), backend="llvm_cpu", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(outcome(compiled, x), outcome(model, x), rtol=1e-9, atol=1e-9)


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
        model = stack(depth).train(trains)
        outcome(jitney.compile(model, backend="llvm_cpu", fullgraph=True), torch.randn(2, 8, 16))
        found.append([len(re.findall(r"^define internal .*@(?:kernel|call)\d+\(", t, re.MULTILINE)) for t in texts])
    assert found[0] == found[1] and len(found[0]) == 1 + trains
