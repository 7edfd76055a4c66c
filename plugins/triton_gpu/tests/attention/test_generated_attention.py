"""Generated attention beside eager: whatever masks, biases, caps and softmaxes come together."""

from __future__ import annotations

import pytest
import torch
from attention_programs import check

import jitney
from jitney_lowering.attention import Recent
from jitney_triton_gpu.attention import kernels
from jitney_triton_gpu.attention.draft import Blocks

SEEDS = range(16)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "blocks", lambda problem, goal: Blocks(16, 16, 4, 1))
    monkeypatch.setattr(kernels, "_launches", Recent(kernels.MOST))
    jitney.reset()


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_attention(seed: int, device: torch.device) -> None:
    check(seed, "triton_gpu", device)
