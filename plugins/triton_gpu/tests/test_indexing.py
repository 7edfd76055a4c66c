"""Reading and writing at computed indices, beside eager."""

from __future__ import annotations

import pytest
import torch
from backend_indexing import *  # noqa: F403

import jitney
from jitney_triton_gpu import tiles


def test_gradients_of_a_table_with_a_row_of_padding(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that fill a program each, so that one mask is for all elements of it."""
    monkeypatch.setattr(tiles, "PROCESSORS", 132)
    torch.manual_seed(0)
    table = torch.nn.Embedding(300, 256, padding_idx=1).to(device)
    rows = torch.randint(0, 300, (1, 256), device=device)
    scale = torch.randn(1, 256, 256, device=device)
    found = []
    for fn in (jitney.compile(lambda i: table(i).sin(), backend="triton_gpu"), lambda i: table(i).sin()):
        table.zero_grad()
        (fn(rows) * scale).sum().backward()
        assert table.weight.grad is not None
        found.append(table.weight.grad.clone())
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)
    assert not found[0][1].any()
