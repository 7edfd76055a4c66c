"""Division of float32: on GPUs by ``helpers.quotient``, in the interpreter by ``div_rn``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import jitney
from jitney_triton_gpu.emit import scalars

COUNT = 1 << 20
NORMAL = torch.finfo(torch.float32).tiny


PROGRAM = """
import torch, triton
from triton import language as tl
from triton.backends.compiler import GPUTarget
from jitney_lowering.index import index
from jitney_triton_gpu import helpers
from jitney_triton_gpu.code import Function, Parameter
from jitney_triton_gpu.launch import compiled

@triton.jit
def divided(a, b, c, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(c + x, helpers.quotient(tl.load(a + x), tl.load(b + x)))

parameters = tuple(Parameter(name, "buffer", name, torch.float32) for name in "abc")
function = Function("divided", parameters, "", {"XBLOCK": 256}, index(100), 4)
print(compiled(function, divided, GPUTarget("cuda", 90, 32), aligned=True).asm["ptx"])
"""


def test_no_thread_waits_for_others(tmp_path: Path) -> None:
    path = tmp_path / "program.py"  # a process of its own: Triton compiles nothing in one that interprets
    path.write_text(PROGRAM)
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True)
    assert "div.full.f32" in ran.stdout and "fma.rn.f32" in ran.stdout, ran.stderr
    assert "div.rn" not in ran.stdout


@pytest.mark.parametrize("interpreted", [False, True])
def test_the_interpreter_has_no_fused_product_and_sum(monkeypatch: pytest.MonkeyPatch, interpreted: bool) -> None:
    monkeypatch.setattr(scalars, "INTERPRETED", interpreted)
    wanted = "tl.div_rn(a, b)" if interpreted else "helpers.quotient(a, b)"
    assert scalars.SPELLINGS["div"](torch.float32, torch.float32, "a", "b") == wanted
    assert scalars.SPELLINGS["div"](torch.float64, torch.float64, "a", "b") == "a / b"


def test_quotients_of_any_bits_are_eager_s(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (2, COUNT), generator=generator).to(torch.int32)
    special = torch.tensor([0.0, -0.0, 1.0, -3.0, float("inf"), -float("inf"), float("nan"), 3e38, 1e-37, 5.0, 7e-30])
    pairs = torch.cartesian_prod(special, special)
    a = torch.cat([bits[0].view(torch.float32), pairs[:, 0]]).to(device)
    b = torch.cat([bits[1].view(torch.float32), pairs[:, 1]]).to(device)
    found, wanted = jitney.compile(torch.div, backend="triton_gpu")(a, b), a / b
    exact = (b.abs() >= NORMAL) | (b == 0)
    exact &= (wanted.abs() >= NORMAL) | (wanted == 0) | wanted.isnan()
    assert exact.float().mean() > 0.9
    torch.testing.assert_close(found[exact], wanted[exact], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(found[~exact], wanted[~exact], rtol=3e-7, atol=3e-45, equal_nan=True)


def test_masked_rows(device: torch.device) -> None:
    def attention(scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(torch.ones_like(scores).triu(1) > 0, float("-inf")).softmax(-1)

    x = torch.randn(70, 70, device=device)
    torch.testing.assert_close(jitney.compile(attention, backend="triton_gpu")(x), attention(x))
