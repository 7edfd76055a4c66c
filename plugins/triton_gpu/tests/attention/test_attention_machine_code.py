"""Kernels of attention compile to machine code of sm_90 with the blocks that they have there, without a GPU too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from fork_server import run_python
from machine_code import described

import jitney
from jitney_lowering.attention import Recent
from jitney_triton_gpu.attention import kernels
from jitney_triton_gpu.code import Function

SHARED = 227 * 1024  # bytes that a program may have on an H100
T = 64


def capped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    t = torch.arange(T, device=q.device)
    seen = (t[None, :] <= t[:, None]) & (t[:, None] - t[None, :] < 40)
    return (5 * torch.tanh(q @ k.mT / 5)).masked_fill(~seen, float("-inf")).softmax(-1) @ v


def table(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    t = torch.arange(T, device=q.device)
    entries = torch.linspace(-1, 1, 2 * T, device=q.device, dtype=q.dtype)
    return (q @ k.mT + entries[t[:, None] - t[None, :] + T]).softmax(-1) @ v


def cache(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    mask = torch.arange(k.size(2), device=k.device)[None] <= position
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


@pytest.mark.slow
def test_all_compile_for_sm_90(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: torch.device) -> None:
    found: list[Function] = []

    def noted(source: str, name: str, functions: dict[str, Function], *rest: Any) -> dict[str, Any]:
        found.extend(functions.values())
        return dict.fromkeys(functions, lambda *given: None)

    monkeypatch.setattr(kernels, "load", noted)
    monkeypatch.setattr(kernels, "_launches", Recent(kernels.MOST))
    precision = kernels._precision
    monkeypatch.setattr(kernels, "_precision", lambda query: "tf32x3" if precision(query) else "")
    for way in (capped, table):
        for dtype, features in ((torch.bfloat16, 64), (torch.float16, 128), (torch.float32, 64), (torch.bfloat16, 20)):
            q, k, v = (
                torch.randn(1, 2, T, features, dtype=dtype, device=device).requires_grad_() for _ in range(3)
            )  # fmt: skip
            result = jitney.compile(way, backend="triton_gpu", fullgraph=True)(q, k, v)
            torch.autograd.grad(result, (q, k, v), torch.ones_like(result))
    for dtype in (torch.bfloat16, torch.float32):
        for heads, features in ((1, 128), (4, 64)):
            q = torch.randn(1, 2 * heads, 1, features, dtype=dtype, device=device)
            k, v = (torch.randn(1, 2, 300, features, dtype=dtype, device=device) for _ in range(2))
            with torch.no_grad():
                jitney.compile(cache, backend="triton_gpu", fullgraph=True)(q, k, v, torch.tensor([100], device=device))
    assert len(found) == 2 * 4 * 3 + 2 * 2 * 2
    asked = tmp_path / "functions.json"
    asked.write_text(described(found))
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    ran = run_python(Path(__file__).parents[1] / "machine_code.py", asked, env=environment)
    assert ran.returncode == 0, ran.stderr
    outcomes = json.loads(ran.stdout)
    assert [f"{o['error']}\n{o['text']}" for o in outcomes if "error" in o] == []
    assert [o["text"] for o in outcomes if o["shared"] > SHARED] == [] and len(outcomes) == len(found)
