"""Generated attention beside eager: whatever masks, biases, caps and softmaxes come together."""

from __future__ import annotations

import pytest
import torch
from attention_programs import attention
from torch import Tensor

import jitney
from jitney_triton_gpu.attention import kernels
from jitney_triton_gpu.attention.draft import Blocks

SEEDS = range(16)
DTYPES = (torch.float32, torch.bfloat16, torch.float32, torch.float16)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "blocks", lambda problem, goal: Blocks(16, 16, 4, 1))
    monkeypatch.setattr(kernels, "_launches", {})
    jitney.reset()


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_attention(seed: int, device: torch.device) -> None:
    dtype = DTYPES[seed % len(DTYPES)]
    program = attention(seed, dtype, trains=seed % 3 != 0)
    given = [x.detach().to(device).requires_grad_(x.requires_grad) for x in program.given]
    leaves = [x for x in given if x.requires_grad]
    found, expected = jitney.compile(program.way, backend="triton_gpu", fullgraph=True)(*given), program.way(*given)
    weights = torch.linspace(-1, 1, expected.numel(), device=expected.device).view(expected.shape).to(expected.dtype)

    def gradients(result: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(result, leaves, weights) if leaves else ()

    for mine, theirs in zip((found, *gradients(found)), (expected, *gradients(expected)), strict=True):
        least = 2e-5 if dtype is torch.float32 else 5e-2
        size = max(1.0, float(theirs.detach().nan_to_num(0.0).abs().max()))
        torch.testing.assert_close(mine, theirs, rtol=least, atol=least * size, equal_nan=True, msg=program.text)
