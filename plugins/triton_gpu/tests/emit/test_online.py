"""Softmax of long rows: the greatest and the sum in one pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney_triton_gpu import launcher, tiles

INF, NAN = float("inf"), float("nan")
PROGRAMS = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.clamp(min=-5).log_softmax(-1),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(len(x), device=x.device), reduction="none"),
}


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    load = launcher.load

    def noting(source: str, *rest: Any) -> Any:
        found.append(source)
        return load(source, *rest)

    monkeypatch.setattr(launcher, "load", noting)
    monkeypatch.setattr(tiles, "LONGEST_ROW", 64)
    monkeypatch.setattr(tiles, "PIECE", (32, 1))
    return found


def rows(device: torch.device) -> torch.Tensor:
    x = torch.randn(9, 150, generator=torch.Generator().manual_seed(0)) * 9
    x[1], x[2, :40], x[3, 70:], x[4, 7], x[5, 149], x[6, 3] = -INF, -INF, -INF, INF, NAN, 300.0
    x[7] = torch.linspace(-90, 90, 150)
    x[8] = -INF
    x[8, 149] = -3e38
    return x.to(device)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_with_extremes(name: str, dynamic: bool, sources: list[str], device: torch.device) -> None:
    x, fn = rows(device), PROGRAMS[name]
    found = jitney.compile(fn, backend="triton_gpu", dynamic=dynamic)(x)
    torch.testing.assert_close(found, fn(x), equal_nan=True)
    if not (dynamic and name == "softmax"):  # which keeps what it sums up in memory
        assert "helpers.online(" in "".join(sources)


def test_halves_and_gradients(sources: list[str], device: torch.device) -> None:
    x = torch.randn(5, 150, device=device, dtype=torch.bfloat16)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    target = torch.arange(5, device=device)
    jitney.compile(F.cross_entropy, backend="triton_gpu")(mine, target).backward()
    F.cross_entropy(theirs, target).backward()
    torch.testing.assert_close(mine.grad, theirs.grad)
    assert "helpers.online(" in "".join(sources)


def test_other_sums_take_two_passes(sources: list[str], device: torch.device) -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        return (x - 2 * x.amax(-1, keepdim=True)).exp().sum(-1)

    x = rows(device).nan_to_num(0, 9, -9)
    torch.testing.assert_close(jitney.compile(other, backend="triton_gpu")(x), other(x))
    assert "helpers.online(" not in "".join(sources)
