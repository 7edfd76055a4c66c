"""Losses by element and their gradients."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import Captured, lowered, trained

import jitney

LOSSES: dict[str, Any] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.7),
    "smooth_l1 sharp": lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.0),
    "huber": lambda x, y, reduction: F.huber_loss(x, y, reduction=reduction, delta=0.7),
    "soft margin": F.soft_margin_loss,
    "kl": lambda x, y, reduction: F.kl_div(
        x.log_softmax(-1), y.softmax(-1), reduction=reduction.replace("mean", "batchmean")
    ),
    "bce logits": lambda x, y, reduction: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction=reduction),
    "bce": lambda x, y, reduction: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction=reduction),
    "poisson": F.poisson_nll_loss,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name: str, reduction: str, dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return LOSSES[name](x, y, reduction=reduction)

    x = torch.randn(6, 8, dtype=dtype, requires_grad=True)
    trained(fn, x, torch.randn(6, 8, dtype=dtype))


@pytest.mark.parametrize("name", ["mse", "huber", "bce"])
def test_losses_where_sizes_are_symbols(name: str) -> None:
    x = torch.randn(6, 8, requires_grad=True)
    trained(lambda x, y: LOSSES[name](x, y, reduction="mean"), x, torch.randn(6, 8), dynamic=True)


def test_cross_entropy_of_two_classes_refuses_what_is_no_probability() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy(x, y)

    lowered(fn, torch.rand(8), torch.rand(8))
    compiled = jitney.compile(fn, backend=Captured().backend)
    for wrong in (1.5, -0.1, float("nan")):
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            compiled(torch.full((8,), wrong), torch.rand(8))


BACKENDS = ("aot_eager", "llvm_cpu", "triton_gpu")
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("loss", [F.huber_loss, F.soft_margin_loss], ids=["huber", "soft margin"])
def test_losses_of_two_dtypes_have_the_inputs(loss: Any, reduction: str, backend: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = loss(x, y, reduction=reduction) * 2
        return out

    for first, second in itertools.permutations(DTYPES, 2):
        compiled = jitney.compile(fn, backend=backend, dynamic=True)
        for size in (3, 5):
            x, y = torch.randn(size, 3).to(first), torch.randn(size, 3).to(second)
            torch.testing.assert_close(compiled(x, y), fn(x, y), rtol=0, atol=0)
        assert fn(x, y).dtype is first


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_of_a_loss_of_two_dtypes_is_refused_as_in_eager(backend: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.huber_loss(x, y, reduction="none")

    x, y = torch.randn(3, dtype=torch.bfloat16, requires_grad=True), torch.randn(3)
    for run in (fn, jitney.compile(fn, backend=backend)):
        with pytest.raises(RuntimeError, match="Found dtype Float but expected BFloat16"):
            run(x, y).sum().backward()
