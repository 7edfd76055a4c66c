"""Generated attention beside eager: whatever masks, biases, caps and softmaxes come together."""

from __future__ import annotations

import pytest
from attention_programs import check

import jitney
from jitney_llvm_cpu.attention import blocks, choice, operators
from jitney_lowering.attention import Recent

SEEDS = range(32)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROWS", 8)
    monkeypatch.setattr(blocks, "ELEMENTS", 300)
    for name in ("LARGE", "LARGEST"):
        monkeypatch.setattr(choice, name, 1)
    monkeypatch.setattr(operators, "_plans", Recent(operators.MOST))
    jitney.reset()


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_attention(seed: int) -> None:
    check(seed, "llvm_cpu")
