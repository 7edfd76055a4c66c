"""What runs on which device: kernels, copies of numbers, what is left to eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney import events

PROGRAMS: dict[str, Any] = {
    "elements": lambda x: F.gelu(x) * 2 + 1,
    "rows": lambda x: F.layer_norm(x.softmax(-1), (64,)),
    "columns": lambda x: (x.float() ** 2).sum(0),
    "everything": lambda x: (x * x).mean(),
    "turned": lambda x: x.t().contiguous().exp(),
    "a loss": lambda x: F.cross_entropy(x, torch.zeros(len(x), dtype=torch.int64, device=x.device)),
    "normalised": lambda x: F.batch_norm(x, None, None, training=True),
    "random": lambda x: F.dropout(x.exp(), 0.3) + 1,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_become_kernels_forward_and_backward(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Not because a graph was given up that eager's results are right."""
    lowered: dict[str, int] = {}
    x = torch.randn(20, 64, device=device).to(dtype).requires_grad_()
    with events.listen(lambda e: lowered.update({e.kind: e.kernels}) if isinstance(e, events.Lowered) else None):
        found = []
        for run in (PROGRAMS[name], jitney.compile(PROGRAMS[name], backend="triton_gpu", fullgraph=True)):
            torch.manual_seed(0)
            result = run(x)
            weights = torch.linspace(-1, 1, result.numel(), device=device).view(result.shape)
            (gradient,) = torch.autograd.grad((result.float() * weights).sum(), x)
            found.append((result, gradient))
    slack = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(found[1], found[0], **slack)
    assert lowered["forward"] > 0 and lowered["backward"] > 0


def test_training_follows_eager_for_some_steps(device: torch.device) -> None:
    histories = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 4)
        )
        model = model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        run = jitney.compile(model, backend="triton_gpu") if compiles else model
        step = jitney.compile(optimizer.step, backend="triton_gpu") if compiles else optimizer.step
        losses = []
        for _ in range(4):
            loss = F.cross_entropy(run(torch.randn(16, 8).to(device)), torch.randint(0, 4, (16,)).to(device))
            optimizer.zero_grad()
            loss.backward()
            step()
            losses.append(loss.item())
        histories.append((losses, [p.detach().clone() for p in model.parameters()]))
    torch.testing.assert_close(histories[1], histories[0], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs two devices")
def test_auto_places_what_spans_cpu_and_gpu_on_both() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.exp() + 1, y.softmax(-1) * 2

    placed: list[events.Placed] = []
    x, y = torch.randn(5, 6), torch.randn(5, 6, device="cuda")
    with events.listen(lambda e: placed.append(e) if isinstance(e, events.Placed) else None):
        torch.testing.assert_close(jitney.compile(fn, fullgraph=True)(x, y), fn(x, y))
    assert {name for event in placed for name, _ in event.pieces} == {"llvm_cpu", "triton_gpu"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs two devices")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_numbers_of_the_cpu_are_read_on_the_gpu(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return (x * s + s).maximum(x * 0.5) / (s + 1)

    placed: list[events.Placed] = []
    compiled = jitney.compile(fn, backend="triton_gpu", fullgraph=True)
    x = torch.randn(5, 6, device="cuda")
    with events.listen(lambda e: placed.append(e) if isinstance(e, events.Placed) else None):
        for value in (2, 3):
            s = torch.tensor(value).to(dtype)
            torch.testing.assert_close(compiled(x, s), fn(x, s))
    assert "triton_gpu" in {name for event in placed for name, _ in event.pieces}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_kernels_run_on_the_device_of_their_tensors() -> None:
    x = torch.randn(300, device="cuda:1")
    compiled = jitney.compile(lambda x: x.exp().sum() + 1, backend="triton_gpu")
    torch.testing.assert_close(compiled(x), x.exp().sum() + 1)
    assert torch.cuda.current_device() == 0
