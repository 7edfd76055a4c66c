"""Generated attention beside eager: whatever masks, biases, caps and softmaxes come together."""

from __future__ import annotations

import pytest
import torch
from attention_programs import attention
from torch import Tensor

import jitney
from jitney_llvm_cpu.attention import blocks, choice, operators

SEEDS = range(32)
DTYPES = (torch.float32, torch.bfloat16, torch.float32, torch.float16)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROWS", 8)
    monkeypatch.setattr(blocks, "ELEMENTS", 300)
    for name in ("LARGE", "LARGEST"):
        monkeypatch.setattr(choice, name, 1)
    monkeypatch.setattr(operators, "_kernels", {})
    jitney.reset()


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_attention(seed: int) -> None:
    dtype = DTYPES[seed % len(DTYPES)]
    program = attention(seed, dtype, trains=seed % 3 != 0)
    given = program.given
    leaves = [x for x in given if x.requires_grad]
    found, expected = jitney.compile(program.way, backend="llvm_cpu", fullgraph=True)(*given), program.way(*given)
    weights = torch.linspace(-1, 1, expected.numel(), device=expected.device).view(expected.shape).to(expected.dtype)

    def gradients(result: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(result, leaves, weights) if leaves else ()

    for mine, theirs in zip((found, *gradients(found)), (expected, *gradients(expected)), strict=True):
        least = 2e-5 if dtype is torch.float32 else 5e-2
        size = max(1.0, float(theirs.detach().nan_to_num(0.0).abs().max()))
        torch.testing.assert_close(mine, theirs, rtol=least, atol=least * size, equal_nan=True, msg=program.text)
