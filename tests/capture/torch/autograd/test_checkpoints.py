"""``torch.utils.checkpoint`` in a graph, for backends of both levels: gradients, random numbers, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import jitney
from jitney.errors import Unsupported


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(dropout), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.inner(x) * scale


def made(wrap: Callable[[Block, torch.Tensor], Any], dropout: float = 0.0) -> tuple[Block, Callable[..., Any]]:
    torch.manual_seed(0)
    block = Block(dropout)
    return block, lambda x: wrap(block, x)


def trained(block: Block, fn: Callable[..., Any], requires_grad: bool = True) -> list[Any]:
    found: list[Any] = []
    for seed in range(2):
        torch.manual_seed(seed)
        x = torch.randn(3, 4, requires_grad=requires_grad)
        block.zero_grad()
        result = fn(x)
        found.append(result.detach())
        if result.requires_grad:
            result.square().sum().backward()
        found += [x.grad, *(p.grad for p in block.parameters()), torch.rand(())]
    return found


CALLS: dict[str, Callable[[Block, torch.Tensor], Any]] = {
    "not reentrant": lambda block, x: checkpoint(block, x, use_reentrant=False).sin(),
    "reentrant": lambda block, x: checkpoint(block, x, use_reentrant=True).sin(),
    "arguments": lambda block, x: checkpoint(block, x, scale=2.0, use_reentrant=False) + x,
    "function": lambda block, x: checkpoint(lambda a, b: block(a) * b + x.cos(), x, x * 2, use_reentrant=False),
    "sequence": lambda block, x: checkpoint_sequential(block.inner, 2, x, use_reentrant=False),
    "in a row": lambda block, x: checkpoint(block, checkpoint(block, x, use_reentrant=True), use_reentrant=False),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALLS)
def test_checkpoints_are_part_of_the_graph(name: str, backend: str) -> None:
    block, fn = made(CALLS[name])
    wanted = trained(block, fn)
    torch.testing.assert_close(trained(block, jitney.compile(fn, backend=backend, fullgraph=True)), wanted)


@pytest.mark.parametrize("name", ["not reentrant", "reentrant", "sequence"])
def test_what_is_drawn_again_is_the_same(name: str) -> None:
    block, fn = made(CALLS[name], 0.5)
    wanted = trained(block, fn)
    torch.testing.assert_close(trained(block, jitney.compile(fn, backend="eager", fullgraph=True)), wanted)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALLS)
def test_arguments_without_gradients_give_what_eager_gives(name: str, backend: str) -> None:
    block, fn = made(CALLS[name])
    wanted = trained(block, fn, requires_grad=False)
    got = trained(block, jitney.compile(fn, backend=backend), requires_grad=False)
    torch.testing.assert_close(got, wanted)


def asks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.requires_grad:
        y.register_hook(lambda g: g * 2)
    return (y.exp() if torch.is_grad_enabled() else y.cos()) * (1 + x.is_leaf)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_function_asks_for_gradients_as_in_eager(reentrant: bool, backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(asks, x, use_reentrant=reentrant) + checkpoint(asks, x * 2, use_reentrant=reentrant)

    found = []
    for run in (fn, jitney.compile(fn, backend=backend)):
        x = torch.linspace(-1, 1, 5, requires_grad=True)
        result = run(x)
        result.sum().backward()
        found.append((result.detach(), x.grad))
    torch.testing.assert_close(*found)


class Count:
    def __init__(self) -> None:
        self.runs = 0


OLDER = Count()


def counted_in_list(x: torch.Tensor) -> Any:
    runs: list[int] = []

    def counted(a: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return a.sin()

    return checkpoint(counted, x, use_reentrant=False) * 2, lambda: len(runs)


def counted_in_new_object(x: torch.Tensor) -> Any:
    count = Count()

    def counted(a: torch.Tensor) -> torch.Tensor:
        count.runs += 1
        return a.sin()

    return checkpoint(counted, x, use_reentrant=False) * 2, lambda: count.runs


def counted_in_written_object(x: torch.Tensor) -> Any:
    OLDER.runs = 0

    def counted(a: torch.Tensor) -> torch.Tensor:
        OLDER.runs += 1
        return a.sin()

    return checkpoint(counted, x, use_reentrant=False) * 2, lambda: OLDER.runs


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [counted_in_list, counted_in_new_object, counted_in_written_object])
def test_a_function_that_counts_its_runs_is_run_twice(fn: Callable[..., Any], backend: str) -> None:
    x = torch.randn(3, requires_grad=True)
    result, runs = jitney.compile(fn, backend=backend)(x)
    result.sum().backward()
    assert runs() == 2
    with pytest.raises(Unsupported, match="changes something"):
        jitney.compile(fn, backend=backend, fullgraph=True)(x)
