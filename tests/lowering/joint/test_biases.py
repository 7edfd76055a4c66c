"""Biases are added where the results of products are read, if only pointwise operators read these."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn

import jitney
from jitney_aot_eager import backend as aot_eager
from jitney_lowering import unfuse_biases

ADDMM, MM = torch.ops.aten.addmm.default, torch.ops.aten.mm.default


class Mlp(nn.Module):
    """A residual part of a transformer."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 24, dtype=dtype), nn.Linear(24, 8, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(nn.functional.gelu(self.first(x)))


def products(
    function: Callable[..., Any], x: torch.Tensor, worth: Callable[[fx.Node], bool] = lambda node: True
) -> list[str]:
    """The products of the joint graph afterwards; what comes out, and all gradients, are compared with eager's."""
    found: list[str] = []

    def change(graph: fx.Graph, options: Any) -> None:
        unfuse_biases(graph, worth)
        found.extend(n.target.name() for n in graph.nodes if n.target in (ADDMM, MM) and n.meta["phase"] == "forward")

    eager = copy.deepcopy(function)
    compiled = jitney.compile(function, backend=dataclasses.replace(aot_eager, joint_pass=change))
    given = [x.detach().clone().requires_grad_(x.requires_grad) for _ in range(2)]
    expected, result = eager(given[0]), compiled(given[1])
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride()
    if x.requires_grad:
        for y in (expected, result):
            y.square().sum().backward()
        parameters = [[*f.parameters()] if isinstance(f, nn.Module) else [] for f in (eager, function)]
        for a, b in zip([given[1], *parameters[1]], [given[0], *parameters[0]], strict=True):
            torch.testing.assert_close(a.grad, b.grad)
    return found


@pytest.mark.parametrize("train", [False, True])
def test_a_bias_goes_to_the_pointwise_operators_that_read_the_product(train: bool) -> None:
    assert products(Mlp(), torch.randn(2, 5, 8, requires_grad=train)) == ["aten::mm", "aten::mm"]


def test_those_stay_that_do_not_gain() -> None:
    found = products(Mlp(), torch.randn(2, 5, 8), lambda node: bool(node.meta["val"].shape[1] == 8))
    assert found == ["aten::addmm", "aten::mm"]


@pytest.mark.parametrize(
    ("model", "dtype"),
    [
        (Mlp(torch.bfloat16), torch.bfloat16),  # would be rounded twice
        (nn.Linear(8, 8), torch.float32),  # the program gets it
        (nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), torch.float32),  # so does a product
        (nn.Sequential(nn.Linear(8, 8), nn.Unflatten(1, (2, 4)), nn.Softmax(2)), torch.float32),  # sums read it twice
    ],
    ids=["halves", "result", "product", "softmax"],
)
def test_what_is_in_memory_anyway_keeps_its_bias(model: nn.Module, dtype: torch.dtype) -> None:
    found = products(model, torch.randn(5, 8, dtype=dtype))
    assert set(found) == {"aten::addmm"}


def test_other_addends_stay() -> None:
    def added(x: torch.Tensor) -> torch.Tensor:
        whole = torch.addmm(x + 1, x, x).relu() + torch.addmm(x[0], x, x, beta=0.5).relu()
        return whole + torch.addmm(x[0], x, x).relu()

    assert sorted(products(added, torch.randn(4, 4))) == ["aten::addmm", "aten::addmm", "aten::mm"]
