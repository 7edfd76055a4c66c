"""Cells of a notebook that run again leave nothing behind of the functions and classes that they define anew."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import jitney

CELL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x).relu() * 2

    def generate(self, x):
        return self(x) + 1


def breaks(x):
    y = x + 1
    jitney.graph_break()
    return y * 2


model = jitney.compile(Model(), backend=backend)
in_place = jitney.compile(Model(), backend=backend, inplace=True)
step = jitney.compile(lambda x: x.sin() + 1, backend=backend)
broken = jitney.compile(breaks, backend=backend)
for compiled in (model, model.generate, model.forward, in_place, step, broken):
    compiled(torch.ones(2, 2, requires_grad=True)).sum().backward()
"""
NAMES = ("Model", "breaks", "model", "in_place", "step", "broken")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_what_an_earlier_run_of_a_cell_has_defined_is_let_go(backend: str) -> None:
    space: dict[str, Any] = {"nn": nn, "torch": torch, "jitney": jitney, "backend": backend}
    earlier: list[Any] = []
    for _ in range(3):
        exec(compile(CELL, "<cell>", "exec"), space)
        earlier.append([weakref.ref(space[name]) for name in NAMES])
    gc.collect()
    alive = [[name for name, one in zip(NAMES, refs, strict=True) if one() is not None] for refs in earlier]
    assert alive == [[], [], list(NAMES)]
