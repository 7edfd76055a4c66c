"""The order of the forward half: what reads memory that is written to keeps its time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import jitney

X = (4, 6)


class TrainsThenTests(nn.Module):
    """One batch norm: its statistics are written by the first call and read by the second."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6).double()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.norm.train()
        first = self.norm(x)
        self.norm.eval()
        return first.sum() + self.norm(y).sin().sum()


def lerp(x: Tensor, y: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return torch.lerp(F.batch_norm(x, mean, var, None, None, True, 0.1), y, mean).sin().sum()


def twice(x: Tensor, y: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    first = F.batch_norm(x, mean, var, None, None, True, 0.1)
    return (first + F.batch_norm(y, mean, var, None, None, False)).sin().sum()


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("function", [lerp, twice], ids=lambda f: f.__name__)
def test_statistics_are_read_after_they_are_written(function: Callable[..., Tensor], backend: str) -> None:
    x, y = (torch.randn(X, dtype=torch.float64).requires_grad_() for _ in range(2))
    found = []
    for run in (jitney.compile(function, backend=backend), function):
        mean, var = torch.full((6,), 0.3, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
        result = run(x, y, mean, var)
        found.append((result, *torch.autograd.grad(result, (x, y)), mean, var))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_a_norm_that_trains_and_then_tests(backend: str) -> None:
    x, y = (torch.randn(X, dtype=torch.float64).requires_grad_() for _ in range(2))
    found = []
    for compiled in (True, False):
        model = TrainsThenTests()
        result = (jitney.compile(model, backend=backend) if compiled else model)(x, y)
        found.append((result, *torch.autograd.grad(result, (x, y, *model.parameters()))))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
