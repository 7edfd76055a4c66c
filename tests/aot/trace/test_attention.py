"""Masks of constants that hide nothing, or what comes later, are no tensors for attention: fused kernels take over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

import jitney
from jitney.backends import Backend, CompileRequest


def positions(x: Tensor) -> Tensor:
    return torch.arange(x.shape[-2], device=x.device)


def full(x: Tensor) -> Tensor:
    """As transformers writes it where it cannot look."""
    size = x.shape[-2]
    return (positions(x)[None, None, :, None] >= 0).expand(x.shape[0], -1, size, size)


def causal(x: Tensor) -> Tensor:
    return positions(x)[None, :] <= positions(x)[:, None]


def additive(x: Tensor) -> Tensor:
    size = x.shape[-2]
    return torch.triu(torch.full((size, size), torch.finfo(x.dtype).min), diagonal=1)


def data(x: Tensor) -> Tensor:
    return (x[..., 0] > 0)[:, :, None, :] | torch.eye(x.shape[-2], dtype=torch.bool)


def written(x: Tensor) -> Tensor:
    """In place, after it hid nothing."""
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool)
    mask[:, 3] = False
    return mask


def given(x: Tensor) -> Tensor:
    return torch.tensor([[True] * 8] * 8)


MASKS: list[tuple[Callable[[Tensor], Tensor], bool | None]] = [
    (full, False), (lambda x: full(x)[0, 0], False), (given, False), (lambda x: torch.zeros(8, 8), False),
    (causal, True), (lambda x: causal(x).expand(2, 3, 8, 8), True), (additive, True),
    (lambda x: additive(x) * 0, False),
    (lambda x: causal(x).T, None), (lambda x: causal(x) & (positions(x) > 0), None), (data, None), (written, None),
    (lambda x: (positions(x)[:, None] - positions(x)).abs() < 3, None), (lambda x: torch.full((8, 8), 0.5), None),
    (lambda x: torch.rand(8, 8) > 2, None), (lambda x: additive(x) - 1, None),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MASKS)))
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_masks_that_are_not_needed(number: int, trains: bool, dynamic: bool | None) -> None:
    """The backend gets none, with sizes that do not change; results and gradients are eager's."""
    mask, causes = MASKS[number]
    found: list[Any] = []

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Any:
        if request.kind != "backward":
            calls = [n for n in graph.graph.nodes if "attention" in str(n.target)]
            found.extend((n.kwargs.get("attn_mask") is not None, (*n.args, 0.0, False)[4]) for n in calls)
        return graph.forward

    def program(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x + 1, x, mask(x))

    compiled = jitney.compile(program, backend=Backend("recorder", compile_graph, level="aten"), dynamic=dynamic)
    x = torch.randn(2, 3, 8, 4, generator=torch.Generator().manual_seed(0))
    mine, theirs = x.clone().requires_grad_(trains), x.clone().requires_grad_(trains)
    got, wanted = compiled(mine), program(theirs)
    torch.testing.assert_close(got, wanted, equal_nan=True)
    if trains:
        for result in (got, wanted):
            result.square().sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad, equal_nan=True)
    if dynamic is None and found:
        assert found == [(causes is None, bool(causes))]
    elif dynamic is None:
        assert causes is None  # torch itself takes it apart
