"""Integers that tensors of the host hold when the frame begins: read before the graph runs, as numbers from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, check_scenario, observe
from torch import nn

import jitney


class Queue(nn.Module):
    """A queue of keys with a pointer that is a buffer (MoCo, arXiv 1911.05722)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("queue", torch.zeros(3, 8))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.linear(x)
        at = int(self.pointer)
        with torch.no_grad():
            self.queue[:, at : at + len(x)] = keys.T
            self.pointer[0] = (at + len(x)) % 8
        return keys @ self.queue


class Normed(nn.Module):
    """Takes its scale from the first batch (Glow, arXiv 1807.03039)."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("initialised", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.initialised.item() == 0:
            self.scale.data.copy_(1 / x.std(0))
            self.initialised.fill_(1)
        return x * self.scale


@pytest.mark.parametrize("model", [Queue, Normed, lambda: nn.Sequential(Normed(), Queue())])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_buffers_that_tell_where_one_is(model: Callable[[], nn.Module], fullgraph: bool) -> None:
    options = {"fullgraph": fullgraph}
    check(model(), torch.randn(2, 3), calls=6, graphs=1, breaks=0, compile_options=options)


def read_before_the_write(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = n.item()
    n += 1
    return x * k, k > 2, float(k), bool(k)


def read_twice(x: torch.Tensor, n: torch.Tensor) -> Any:
    return x[: int(n)], float(n), n.item(), torch.zeros(int(n))


@pytest.mark.parametrize("fn", [read_before_the_write, read_twice])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_numbers_that_change(fn: Callable[..., Any], dtype: torch.dtype) -> None:
    def scenario(wrap: Callable[[Any], Any]) -> Any:
        called = wrap(fn)
        numbers = [torch.tensor(k).to(dtype) for k in (3, 4, 5, 0, 1, 2)]
        if dtype is torch.bool and fn is read_before_the_write:
            return None  # eager adds no number to it
        return [called(torch.arange(6.0), n) for n in numbers], numbers

    check_scenario(scenario)


def test_what_may_have_been_written_is_read_where_it_is() -> None:
    def scenario(wrap: Callable[[Any], Any]) -> Any:
        def by_itself(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            a.add_(1)
            return x * b.item()

        def by_data(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            b.data = a + 1
            return x * int(b)

        out = []
        for fn in (by_itself, by_data):
            called = wrap(fn)
            a, b, many = torch.tensor(3), torch.tensor(5), torch.tensor([1, 2, 3])
            pairs = [(a, b), (b, a), (a, a), (b, a)]
            if fn is by_itself:
                pairs += [(many[1:], many[1]), (many[1:], many[0])]
            out += [called(torch.ones(2), *pair) for pair in pairs]
        return out

    check_scenario(scenario)


def test_many_values_do_not_compile_for_ever() -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x * 2 if n.item() % 16 == 3 else x * (n.item() % 5)

    compiled = jitney.compile(fn, backend="eager")
    with observe() as seen:
        for k in range(40):
            torch.testing.assert_close(compiled(torch.ones(2), torch.tensor(k)), fn(torch.ones(2), torch.tensor(k)))
    assert len(seen.graphs) < 20
