"""Models of many equal layers, and how many functions their native code has."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

from jitney_llvm_cpu.launch import Native

DEPTH = 10


class Block(nn.Module):
    def __init__(self, dropout: float, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.norm, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.into(self.norm(x)).split(width, 2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.wide(self.after(x)))


def stack(depth: int, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(dropout) for _ in range(depth)), nn.LayerNorm(16), nn.Linear(16, 5))


def images(depth: int) -> nn.Module:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(*blocks, nn.AvgPool2d(2))


MODELS = {"transformer": (stack, (2, 8, 16)), "convolutions": (images, (2, 4, 8, 8))}


def functions_by_depth(run: Callable[[int], object], monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """For a model and for one twice as deep: of each of its graphs the number of functions that compute.

    ``run(depth)`` compiles and calls.
    """
    texts: list[str] = []
    text_of = Native.text

    def text(self: Native) -> str:
        texts.append(text_of(self))
        return texts[-1]

    monkeypatch.setattr(Native, "text", text)
    found = []
    for depth in (DEPTH, 2 * DEPTH):
        texts.clear()
        run(depth)
        found.append([len(re.findall(r"^define internal .*@(?:kernel|call)\d+\(", t, re.MULTILINE)) for t in texts])
    return found
