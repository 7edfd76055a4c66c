"""Gradients that look at an activation's result rather than at what it was given: the same, and less is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import jitney

Activation = Callable[[torch.Tensor], torch.Tensor]
EXACT: dict[str, Activation] = {
    "leaky": lambda x: F.leaky_relu(x, 0.2),
    "leaky in place": lambda x: F.leaky_relu(x * 1, 0.1, inplace=True),
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 2.0),
}
OTHERS: dict[str, Activation] = {
    "slope 0": lambda x: F.leaky_relu(x, 0.0),
    "slope below 0": lambda x: F.leaky_relu(x, -0.5),
    "elu": F.elu,
    "threshold": lambda x: F.threshold(x, 0.5, 3.0),
}
EDGES = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-45, -1e-45, 6.0, 2.0, -0.5, 5.999, 0.5]


def saved_bytes(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> int:
    seen: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        fn(x)
    return sum(seen.values())


def convolutions(activation: Activation) -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = activation(layer(x))
            return x.square().mean()

    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize("name", EXACT)
def test_what_an_activation_was_given_is_not_kept(name: str) -> None:
    x = torch.randn(2, 4, 16, 16)
    results, kept = [], []
    for compiled in (False, True):
        net = convolutions(EXACT[name])
        run = jitney.compile(net, backend="aot_eager") if compiled else net
        kept.append(saved_bytes(run, x))
        run(x).backward()
        results.append([p.grad for p in net.parameters()])
    torch.testing.assert_close(*results, rtol=0, atol=0)
    if "place" not in name:
        assert kept[1] < 0.7 * kept[0], kept


@pytest.mark.parametrize("name", [*EXACT, *OTHERS])
@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_gradients_are_eagers_at_all_edges(name: str, backend: str) -> None:
    activation = {**EXACT, **OTHERS}[name]
    edges = EDGES[backend == "llvm_cpu" :]  # eager's vectorised and scalar kernels differ where there is no number

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return activation(x * 1.0) @ w

    results = []
    for run in (fn, jitney.compile(fn, backend=backend)):
        x = torch.tensor([edges]).requires_grad_()
        w = torch.zeros(len(edges), 1).requires_grad_()
        run(x, w).sum().backward()
        y = torch.tensor([edges]).requires_grad_()
        run(y, torch.ones(len(edges), 1)).sum().backward()
        results.append((x.grad, w.grad, y.grad))
    torch.testing.assert_close(*results, rtol=1e-6 if name == "elu" else 0, atol=0, equal_nan=True)


def test_a_result_that_the_caller_writes_to_is_not_relied_on() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.leaky_relu(x * 2, 0.1)
        return y, (y * 3).sin().sum()

    results = []
    for run in (fn, jitney.compile(fn, backend="aot_eager")):
        x = torch.linspace(-2, 2, 9).requires_grad_()
        y, total = run(x, x)
        with torch.no_grad():
            y.detach().zero_()
        total.backward()
        results.append(x.grad)
    torch.testing.assert_close(*results)
