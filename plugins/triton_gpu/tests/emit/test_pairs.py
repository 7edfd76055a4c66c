"""Reductions over pairs: several rows at a time share what is computed of the other side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import jitney
from jitney_triton_gpu import tiles
from jitney_triton_gpu.code import Function

Pairs = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x[:, None] - y[None]).pow(2).sum(-1)


def _overlaps(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    least, most = torch.maximum(x[:, None, :2], y[None, :, :2]), torch.minimum(x[:, None, 2:], y[None, :, 2:])
    common = (most - least).clamp(min=0).prod(-1)
    return common / ((x[:, 2] - x[:, 0])[:, None] + (y[:, 2] - y[:, 0]) - common)


PAIRS: dict[str, Pairs] = {
    "sum": lambda x, y: torch.exp(-_distances(x, y) / 2).sum(1),
    "least": lambda x, y: _distances(x, y).amin(1),
    "nearest": lambda x, y: _distances(x, y).argmin(1),
    "near": lambda x, y: (_distances(x, y) < 0.1).any(1),
    "overlaps": lambda x, y: _overlaps(x, y).amax(1),
    "overlaps of columns": lambda x, y: _overlaps(x, y).amax(0),
    "triangle": lambda x, y: torch.exp(_distances(x, y).triu(1) * -0.1).amin(0),
    "margins": lambda x, y: (1 - (x[:, :1] - y[:, 0])).clamp(min=0).mean(1),
}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, compiled_functions: list[Function]) -> list[Function]:
    """What is compiled, for a machine that few rows fill."""
    monkeypatch.setattr(tiles, "PROCESSORS", 1)
    return compiled_functions


@pytest.mark.parametrize("title", PAIRS)
@pytest.mark.parametrize("count", [1500, 2100])
def test_pairs_are_reduced_as_in_eager(title: str, count: int, launched: list[Function], device: torch.device) -> None:
    generator = torch.Generator().manual_seed(count)
    x, y = (torch.rand(n, 4, generator=generator) for n in (37, count))
    if title in ("overlaps of columns", "triangle"):
        x, y = y, x
    y[5, 0] = float("nan") if title in ("least", "overlaps") else y[5, 0]
    x, y = x.to(device), y.to(device)
    found = jitney.compile(PAIRS[title], backend="triton_gpu", dynamic=False, fullgraph=True)(x, y)
    torch.testing.assert_close(found, PAIRS[title](x, y), rtol=1e-5, atol=1e-6, equal_nan=True)
    assert any(f.blocks.get("XBLOCK") == tiles.PAIRED for f in launched)


def test_loaded_elements_are_reduced_row_by_row(launched: list[Function], device: torch.device) -> None:
    """Memory takes the time; larger tiles would only have fewer bytes on their way."""
    x, y = torch.rand(40, 20000, device=device), torch.rand(20000, device=device)
    jitney.compile(lambda x, y: (x * y.exp().sin()).amax(1), backend="triton_gpu", dynamic=False)(x, y)
    assert [f.blocks.get("XBLOCK", 1) for f in launched if "amax" in f.name][:1] == [1]


@pytest.mark.parametrize("length", [1025, 1500, 4096, 5000, 6000, 100_000])
def test_little_of_the_last_piece_is_empty(length: int) -> None:
    tile = tiles.rows(10_000, length, False, shared=0.5)
    assert (tile.x, tile.whole) == (tiles.PAIRED, False)
    assert -(-length // tile.r) * tile.r <= max(length * 1.4, length + 256)
