"""Gates, dropout, gradients of slices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import Captured, externs, lowered, trained

import jitney


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_glu(dtype: torch.dtype) -> None:
    captured = trained(lambda x: F.glu(x, 1), torch.randn(3, 6, 4).to(dtype).requires_grad_(), whole=None)
    assert externs(captured.programs) == ["cat.default"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logsigmoid(dtype: torch.dtype) -> None:
    trained(F.logsigmoid, (torch.randn(64) * 20).to(dtype).requires_grad_())


def test_prelu() -> None:
    trained(F.prelu, torch.randn(3, 6, 4, requires_grad=True), torch.rand(6, requires_grad=True))
    trained(F.prelu, torch.randn(3, 6, requires_grad=True), torch.rand(1, requires_grad=True))


SLICES: dict[str, Any] = {
    "slice": lambda x: x[1:3] * 2,
    "slice with a step": lambda x: x[:, ::2].exp(),
    "select": lambda x: x[1] * x[-1],
    "split": lambda x: (lambda a, b: a * b)(*x.split(2, 0)),
}


@pytest.mark.parametrize("name", SLICES)
def test_gradients_of_parts(name: str) -> None:
    trained(SLICES[name], torch.randn(4, 6, requires_grad=True), whole=None)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("fn", [F.dropout, torch.native_dropout], ids=["dropout", "native_dropout"])
def test_dropout_draws_eagers_numbers(fn: Any, train: bool) -> None:
    def step(x: torch.Tensor) -> Any:
        return fn(x * 2, 0.3, train), torch.rand(3)

    x = torch.randn(100)
    torch.manual_seed(5)
    want = step(x)
    captured = Captured()
    torch.manual_seed(5)
    got = jitney.compile(step, backend=captured.backend)(x)
    torch.testing.assert_close(got, want)
    assert all(s.reason == "random" for s in captured.program.steps if hasattr(s, "reason") and s.target is not None)


def test_random_operators_stay_in_order_even_if_nobody_reads_them() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        torch.rand(5)
        a = torch.rand(3)
        torch.randn(2)
        return x + torch.rand(3) - a

    torch.manual_seed(5)
    want = step(torch.ones(3))
    captured = Captured()
    torch.manual_seed(5)
    got = jitney.compile(step, backend=captured.backend)(torch.ones(3))
    torch.testing.assert_close(got, want)
    assert len(externs(captured.programs)) == 4


def test_operators_taken_apart_by_torch_compute_the_same() -> None:
    def fn(x: torch.Tensor) -> Any:
        return F.celu(x), torch.diag_embed(x), F.pixel_shuffle(x.reshape(1, 4, 2, 3), 2), x.nansum(1)

    lowered(fn, torch.randn(4, 6), whole=None)
