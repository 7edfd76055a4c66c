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


class Padded(nn.Module):
    """A convolution that pads by what it computes of buffers and the length (Encodec, arXiv 2210.13438)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 5, stride=2)
        self.register_buffer("stride", torch.tensor(2))
        self.register_buffer("kernel", torch.tensor(5))
        self.register_buffer("total", torch.tensor(5) - 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[-1]
        frames = torch.ceil((length - self.kernel + self.total) / self.stride + 1).to(torch.int64) - 1
        extra = frames * self.stride + self.kernel - self.total - length
        if length <= max(self.total, extra):
            x = nn.functional.pad(x, (0, max([self.total, extra]) - length + 1))
        return self.conv(nn.functional.pad(x, (self.total, extra), "reflect"))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("lengths", "breaks"), [((20, 20, 21, 23), 0), ((20, 3, 22, 2, 21, 4, 23), 1)])
def test_numbers_computed_of_numbers_and_sizes(backend: str, lengths: tuple[int, ...], breaks: int) -> None:
    def story(wrap: Callable[[Any], Any]) -> Any:
        torch.manual_seed(0)
        model = Padded()
        called = wrap(model)
        out = [called(torch.arange(float(length))[None, None]) for length in lengths]
        model.kernel.sub_(1)  # the other buffers stay
        return [*out, *(called(torch.arange(float(n))[None, None]) for n in (20, 21))]

    wanted = story(lambda fn: fn)
    with observe() as seen:
        found = story(lambda fn: jitney.compile(fn, backend=backend))
    torch.testing.assert_close(found, wanted)
    assert len(seen.breaks) <= breaks  # of the last forms that there may be


def ends_of_slices(x: torch.Tensor, n: torch.Tensor) -> Any:
    items = [x, x + 1, x + 2, x + 3]
    return x[n + 1 :], x[: n * 2], items[n - 1], items[1 - n :], sorted([n, 3 - n, n // 2])[1]


def after_a_write(x: torch.Tensor, n: torch.Tensor) -> Any:
    before = int(n + 1)
    n.mul_(2)
    return x * before, x * int(n + 1), max(n, n + 1)


def of_many(x: torch.Tensor, n: torch.Tensor) -> Any:
    return x * int((torch.arange(4) * n).sum())


def of_a_quotient(x: torch.Tensor, n: torch.Tensor) -> Any:
    length = torch.as_tensor(3 * x.shape[-1] / 4)  # as resampling computes its length (julius)
    return x[: torch.floor(length).long()], x[: torch.ceil(length).long() - n]


@pytest.mark.parametrize("fn", [ends_of_slices, after_a_write, of_many, of_a_quotient])
def test_computed_numbers_that_change(fn: Callable[..., Any]) -> None:
    def scenario(wrap: Callable[[Any], Any]) -> Any:
        called = wrap(fn)
        numbers = [torch.tensor(k) for k in (1, 2, 1, 2, 0, 3)]
        return [called(torch.arange(6.0 + at % 3), n) for at, n in enumerate(numbers)], numbers

    check_scenario(scenario)


def test_memory_that_the_frame_writes_to_is_not_computed_of() -> None:
    def scenario(wrap: Callable[[Any], Any]) -> Any:
        def fn(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            a.add_(1)
            return x * int(b * 2)

        called, many = wrap(fn), torch.tensor([1, 2, 3])
        a, b = torch.tensor(3), torch.tensor(5)
        return [called(torch.ones(2), *pair) for pair in [(a, b), (b, a), (a, a), (many[1:], many[1]), (many[1:], b)]]

    check_scenario(scenario)


@pytest.mark.parametrize("fn", [max, min, sorted])
def test_tensors_are_compared_as_python_compares_them(fn: Callable[..., Any]) -> None:
    def scenario(wrap: Callable[[Any], Any]) -> Any:
        def program(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
            found = fn([a, b, x])
            return found, [found is one for one in (a, b, x)], (a, b, x) if fn is sorted else fn(a, 2)

        called = wrap(program)
        triples = [(1.0, 2.0, 3.0), (3.0, 2.0, 1.0), (2.0, 2.0, 2.0), (float("nan"), 1.0, 2.0)]
        return [called(*map(torch.tensor, triple)) for triple in triples]

    check_scenario(scenario)
