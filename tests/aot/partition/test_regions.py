"""Checkpointed regions in a training step that is one graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import jitney
from jitney import events


class Block(nn.Module):
    """Wide inside."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.drop = nn.Linear(16, 128), nn.Linear(128, 16), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, 16)."""
        return x + self.narrow(self.drop(torch.tanh(self.wide(x)).sin()))


def trained(backend: str | None, checkpoints: bool, **options: Any) -> tuple[Any, list[int]]:
    """What three steps leave behind, and bytes of the temporaries of each graph."""
    torch.manual_seed(0)
    blocks = nn.ModuleList(Block() for _ in range(5))
    optimizer = torch.optim.SGD(blocks.parameters(), 0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        hidden = x
        for block in blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False, **options) if checkpoints else block(hidden)
        loss = hidden.square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = jitney.compile(step, backend=backend, fullgraph=True) if backend else step
    arenas: list[int] = []
    with events.listen(lambda e: arenas.append(e.arena) if isinstance(e, events.Scheduled) else None), events.details():
        losses = [run(torch.randn(64, 16)) for _ in range(3)]
    return [losses, list(blocks.parameters()), [p.grad for p in blocks.parameters()], torch.get_rng_state()], arenas


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_numbers_are_eagers(backend: str) -> None:
    found, _ = trained(backend, checkpoints=True)
    close = 1e-4 if backend == "llvm_cpu" else 1e-6
    torch.testing.assert_close(found, trained(None, checkpoints=True)[0], rtol=close, atol=close / 10)


def test_what_a_region_has_made_is_not_kept() -> None:
    _, kept = trained("llvm_cpu", checkpoints=False)
    _, again = trained("llvm_cpu", checkpoints=True)
    assert max(again) < 0.5 * max(kept)
