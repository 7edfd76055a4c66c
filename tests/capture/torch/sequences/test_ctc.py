"""``F.ctc_loss`` with lengths in tensors is part of the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import compile_fn, observe, t
from torch import nn

LENGTHS = ([5, 5], [4, 3]), ([2, 1], [2, 2])


def same(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted)
    assert got.shape == wanted.shape and got.stride() == wanted.stride()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_one_graph(reduction: str, backend: str) -> None:
    def fn(x: torch.Tensor, targets: torch.Tensor, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        scores = (x * 2).log_softmax(-1)
        return F.ctc_loss(scores, targets, inputs, lengths, reduction=reduction, zero_infinity=True).exp() + 1

    compiled = compile_fn(fn, backend=backend)
    with observe() as seen:
        for inputs, lengths in zip(*LENGTHS, strict=True):
            args = (torch.tensor([[1, 2], [2, 3]]), torch.tensor(inputs), torch.tensor(lengths))
            one, other = t(5, 2, 4).requires_grad_(), t(5, 2, 4).requires_grad_()
            got, wanted = compiled(one, *args), fn(other, *args)
            same(got, wanted)
            got.sum().backward()
            wanted.sum().backward()
            torch.testing.assert_close(one.grad, other.grad)
    assert len(seen.graphs) == 1 and not seen.breaks


def test_other_forms() -> None:
    def fn(x: torch.Tensor, reduction: str) -> Any:
        scores = x.log_softmax(-1)
        one = F.ctc_loss(scores[:, 0], torch.tensor([1, 2]), torch.tensor(5), torch.tensor(2), reduction=reduction)
        lists = F.ctc_loss(scores, torch.tensor([[1, 2], [2, 3]]), [5, 5], [2, 1], reduction=reduction)
        half = F.ctc_loss(scores.double(), torch.tensor([1, 2, 2]), torch.tensor([5, 5]), torch.tensor([2, 1]), 0)
        module = nn.CTCLoss(blank=3, reduction=reduction)
        return (
            one,
            lists,
            half,
            module(scores, torch.tensor([[1, 2], [2, 1]]), torch.tensor([5, 4]), torch.tensor([2, 1])),
        )

    compiled = compile_fn(fn, fullgraph=True)
    for reduction in ("none", "mean", "sum"):
        for got, wanted in zip(compiled(t(5, 2, 4), reduction), fn(t(5, 2, 4), reduction), strict=True):
            same(got, wanted)


def test_what_torch_refuses() -> None:
    def fn(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2], [2, 3]]), lengths, torch.tensor([2, 1]))

    compiled = compile_fn(fn)
    compiled(t(5, 2, 4), torch.tensor([5, 5]))
    for lengths in ([9, 5], [5]):
        with pytest.raises(RuntimeError) as wanted:
            fn(t(5, 2, 4), torch.tensor(lengths))
        with pytest.raises(RuntimeError) as got:
            compiled(t(5, 2, 4), torch.tensor(lengths))
        assert str(got.value) == str(wanted.value)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_a_training_step_is_compiled_around_it(backend: str) -> None:
    def trained(compile: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4), nn.LogSoftmax(-1))
        optimizer = torch.optim.SGD(module.parameters(), 0.1)

        def step(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            targets = torch.tensor([[1, 2], [2, 3]])
            loss = F.ctc_loss(module(x), targets, lengths, torch.tensor([2, 1]))
            loss.backward()
            optimizer.step()
            return loss.detach()

        called = compile(step)
        return [called(t(5, 2, 3), torch.tensor(n)) for n in ([5, 5], [4, 5])] + [
            p.detach() for p in module.parameters()
        ]

    with observe() as seen:
        compiled = trained(lambda fn: compile_fn(fn, backend=backend))
    torch.testing.assert_close(compiled, trained(lambda fn: fn))
    cut = ["back over an operator that runs as it is" in reason for reason in seen.breaks]
    assert not seen.breaks if backend == "eager" else cut[0]
