"""Iterators older than the frame whose position changes: each item that is still to come is guarded by itself."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import jitney

NUMBERS = [1, 2, 3, 4, 5, 6]
MADE: dict[str, Callable[[], Iterator[Any]]] = {
    "list": lambda: iter([*NUMBERS]),
    "tuple": lambda: iter((*NUMBERS,)),
    "text": lambda: map_to_numbers("123456"),
    "range": lambda: iter(range(1, 7)),
    "backwards": lambda: reversed([*NUMBERS]),
    "dictionary": lambda: iter(dict.fromkeys(NUMBERS)),
    "values": lambda: iter({str(n): n for n in NUMBERS}.values()),
    "ordered dictionary": lambda: iter(collections.OrderedDict.fromkeys(NUMBERS)),
    "chain": lambda: itertools.chain([1, 2], (), (3,), range(4, 6), {6: 7}),
    "chain of iterators": lambda: itertools.chain(iter([1, 2]), [3, 4, 5]),
    "begun chain": lambda: begun(itertools.chain([0, 1, 2], [3, 4], [5, 6])),
    "chain of all": lambda: itertools.chain.from_iterable([[1, 2], [3], [], [4, 5, 6]]),
    "deque": lambda: iter(collections.deque(NUMBERS)),
    "cycle": lambda: itertools.islice(itertools.cycle([1, 2, 3]), 6),
    "nothing": lambda: iter([]),
}


def map_to_numbers(text: str) -> Iterator[Any]:
    return iter(list(map(int, text)))


def begun(iterator: Iterator[Any]) -> Iterator[Any]:
    next(iterator)
    return iterator


def broken_at_each_turn(x: torch.Tensor, items: Iterator[Any]) -> Any:
    for value in items:
        x = x * value + 1
        jitney.graph_break()
    return x


def broken_now_and_then(x: torch.Tensor, items: Iterator[Any]) -> Any:
    for value in items:
        x = x + value
        if value % 2:
            jitney.graph_break()
    return x, next(items, "end"), next(items, None)


def numbered(x: torch.Tensor, items: Iterator[Any]) -> Any:
    for place, value in enumerate(items, 3):
        x = x * place - value
        jitney.graph_break()
    return x


def paired(x: torch.Tensor, items: Iterator[Any]) -> Any:
    for value, (place, other) in zip(items, enumerate(range(4)), strict=False):
        x = x * place - value + other
        jitney.graph_break()
    return x, list(items)


def two_at_a_time(x: torch.Tensor, items: Iterator[Any]) -> Any:
    found = next(items, 0), next(items, 0)
    return x * found[0] + found[1], found


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("fn", [broken_at_each_turn, broken_now_and_then, numbered, paired, two_at_a_time])
def test_a_loop_goes_on_from_any_position(fn: Any, made: str) -> None:
    compiled = jitney.compile(fn, backend="eager")
    expected, items = MADE[made](), MADE[made]()
    for _ in range(4):
        wanted, got = fn(torch.ones(2), expected), compiled(torch.ones(2), items)
        assert str(got) == str(wanted)
    assert list(items) == list(expected)


def test_a_turn_of_a_loop_is_one_frame() -> None:
    compiled = jitney.compile(broken_at_each_turn, backend="eager")
    with jitney.CompileProfiler() as profiler:
        compiled(torch.ones(2), itertools.chain([1, 2, 3], [4, 5, 6, 7]))
    reasons = [reason for frame in profiler.frames.values() for reason in frame.breaks]
    assert all("graph_break" in reason for reason in reasons), reasons
    assert sum(frame.graphs for frame in profiler.frames.values()) <= 5


def test_tensors_that_are_still_to_come_are_inputs_of_the_graph() -> None:
    compiled = jitney.compile(broken_at_each_turn, backend="eager")
    for size in (3, 5):
        tensors = [torch.full((2,), float(i)) for i in range(size)]
        torch.testing.assert_close(
            compiled(torch.ones(2), iter(tensors)), broken_at_each_turn(torch.ones(2), iter(tensors))
        )


def grows(x: torch.Tensor, items: Iterator[Any], owner: list[int]) -> Any:
    for value in items:
        x = x + value
        if len(owner) < 8:
            owner.append(value + 1)
        jitney.graph_break()
    return x


def grows_first(x: torch.Tensor, items: Iterator[Any], owner: list[int]) -> Any:
    owner.append(9)
    found = next(items, 0)
    jitney.graph_break()
    return x * found + next(items, 0), len(owner)


def grows_at_the_end(x: torch.Tensor, items: Iterator[Any], owner: list[int]) -> Any:
    found = next(items, 0), next(items, 0)
    owner.append(9)
    return x * found[0] + found[1], found


@pytest.mark.parametrize("fn", [grows, grows_first, grows_at_the_end])
@pytest.mark.parametrize("others", [(False, False, True), (True, True, True, False), (True, False, True)])
def test_a_list_that_the_frame_makes_longer(fn: Any, others: tuple[bool, ...]) -> None:
    compiled = jitney.compile(fn, backend="eager")
    states: list[Any] = [([1, 2, 3], []), ([1, 2, 3], [])]
    iterators = [iter(owner) for owner, _ in states]
    for other in others:
        results = [
            str(run(torch.ones(2), iterator, [5, 6] if other else owner))
            for run, iterator, (owner, _) in zip((fn, compiled), iterators, states, strict=True)
        ]
        assert results[1] == results[0]
    assert states[0] == states[1]
    assert list(iterators[0]) == list(iterators[1])


def test_a_list_in_a_chain_that_the_frame_makes_longer() -> None:
    def fn(x: torch.Tensor, items: Iterator[Any], owner: list[int]) -> Any:
        owner.append(9)
        return x * next(items, 0) + next(items, 0), len(owner)

    compiled = jitney.compile(fn, backend="eager")
    for other in (True, True, True, False):
        results = []
        for run in (fn, compiled):
            owner = [1]
            items = itertools.chain([4], owner)
            results.append([str(run(torch.ones(2), items, [1] if other else owner)) for _ in range(3)])
        assert results[0] == results[1]


def test_an_iterator_that_is_advanced_in_two_ways() -> None:
    def fn(x: torch.Tensor, pairs: Iterator[Any]) -> Any:
        for first, second in pairs:
            x = x * first + second
            jitney.graph_break()
        return x

    compiled = jitney.compile(fn, backend="eager")
    for size in (4, 6, 7):
        one, other = iter(range(size)), iter(range(size))
        wanted = fn(torch.ones(2), zip(one, one, strict=False))
        torch.testing.assert_close(compiled(torch.ones(2), zip(other, other, strict=False)), wanted)


def test_a_strict_zip_of_different_lengths_raises() -> None:
    compiled = jitney.compile(broken_at_each_turn, backend="eager")
    pairs = zip([torch.ones(2)] * 3, [1, 2], strict=True)
    with pytest.raises((ValueError, TypeError)) as raised:
        compiled(torch.ones(2), pairs)
    with pytest.raises(type(raised.value)):
        broken_at_each_turn(torch.ones(2), zip([torch.ones(2)] * 3, [1, 2], strict=True))


def test_a_class_that_stands_for_the_end_is_an_item_like_others() -> None:
    def fn(x: torch.Tensor, items: Iterator[Any]) -> Any:
        found = next(items, None)
        return x + 1, found

    compiled = jitney.compile(fn, backend="eager")
    items = iter([1, 2, StopIteration, 3])
    for _ in range(6):
        assert compiled(torch.ones(2), items)[1] in (1, 2, StopIteration, 3, None)
    items, expected = iter([1, StopIteration]), iter([1, StopIteration])
    assert [compiled(torch.ones(2), items)[1] for _ in range(4)] == [next(expected, None) for _ in range(4)]
