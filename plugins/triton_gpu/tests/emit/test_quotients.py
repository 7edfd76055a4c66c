"""Division of float32 by ``helpers.quotient``: every bit is eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import jitney
from jitney_triton_gpu import launcher

COUNT = 1 << 20


def test_quotients_of_any_bits_are_eager_s(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (2, COUNT), generator=generator).to(torch.int32)
    special = torch.tensor([0.0, -0.0, 1.0, -3.0, float("inf"), -float("inf"), float("nan"), 3e38, 1e-37, 5.0, 7e-30])
    pairs = torch.cartesian_prod(special, special)
    a = torch.cat([bits[0].view(torch.float32), pairs[:, 0]]).to(device)
    b = torch.cat([bits[1].view(torch.float32), pairs[:, 1]]).to(device)
    found, wanted = jitney.compile(torch.div, backend="triton_gpu")(a, b), a / b
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.signbit() | found.isnan(), wanted.signbit() | wanted.isnan())


def test_zeros_take_the_fast_path(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """No zero is divided."""
    divided: list[str] = []
    load = launcher.load

    def noting(source: str, *rest: Any) -> Any:
        divided.append(source)
        return load(source, *rest)

    monkeypatch.setattr(launcher, "load", noting)
    jitney.compile(torch.div, backend="triton_gpu")(torch.zeros(9, device=device), torch.ones(9, device=device))
    assert "helpers.quotient(" in divided[0] and "div_rn" not in divided[0]


def test_masked_rows(device: torch.device) -> None:
    def attention(scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(torch.ones_like(scores).triu(1) > 0, float("-inf")).softmax(-1)

    x = torch.randn(70, 70, device=device)
    torch.testing.assert_close(jitney.compile(attention, backend="triton_gpu")(x), attention(x))
