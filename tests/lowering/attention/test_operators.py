"""The operators without kernels: what they say is what products and a softmax give, and so are their gradients."""

from __future__ import annotations

import torch
from torch import fx

from jitney_lowering.attention import FORWARD, Score

aten = torch.ops.aten


def score(gradient: bool) -> str:
    """``0.5 * tanh(products) + other``, and its gradient."""
    graph = fx.Graph()
    products, other = graph.placeholder("products"), graph.placeholder("other")
    given = graph.placeholder("given") if gradient else None
    tanh = graph.call_function(aten.tanh.default, (products,))
    found = graph.call_function(aten.add.Tensor, (graph.call_function(aten.mul.Tensor, (tanh, 0.5)), other))
    results = [found]
    if given is not None:
        half = graph.call_function(aten.mul.Tensor, (given, 0.5))
        results.append(graph.call_function(aten.tanh_backward.default, (half, tanh)))
    graph.output(tuple(results))
    return Score(graph, gradient, (2, 3, 7, 9), torch.float32).text()


def written(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (0.5 * torch.tanh(q @ k.mT) + other).softmax(-1) @ v.view(2, 3, 9, 4)


def test_numbers_and_gradients() -> None:
    q, k, v = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 9, 5), torch.randn(6, 9, 4)
    leaves = [x.double().float().requires_grad_() for x in (q, k, v)]
    other = torch.randn(3, 1, 9)
    found, largest, total = FORWARD(*leaves, [other], score(True))
    expected = written(*leaves, other)
    assert found.shape == (6, 7, 4) and found.is_contiguous()
    torch.testing.assert_close(found.view_as(expected), expected)
    torch.testing.assert_close(largest + total.log(), (0.5 * torch.tanh(q @ k.mT) + other).logsumexp(-1))
    given = torch.randn_like(expected)
    mine = torch.autograd.grad(found, leaves, given.view_as(found))
    for a, b in zip(mine, torch.autograd.grad(expected, leaves, given), strict=True):
        torch.testing.assert_close(a, b)


def test_half_precision_is_multiplied_as_wide_as_the_products() -> None:
    q, k, v = (torch.randn(2, 3, n, 5, dtype=torch.bfloat16) for n in (7, 9, 9))
    other = torch.zeros(9)
    found = FORWARD(q, k, v.reshape(6, 9, 5), [other], score(False))[0]
    exact = (0.5 * torch.tanh(q.double() @ k.double().mT)).softmax(-1) @ v.double()
    torch.testing.assert_close(found.view_as(exact).double(), exact, rtol=2e-2, atol=2e-2)
