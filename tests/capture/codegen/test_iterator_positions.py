"""Iterators stand where eager leaves them, also past the end of a zip whose lists grow later."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import jitney
from jitney.capture.builtin_iterators import parts

Fn = Callable[..., Any]


def first_grows(x: torch.Tensor, a: list[int], b: list[int], z: Iterator[Any]) -> Any:
    for _ in z:
        pass
    a.append(7)
    return x + 1


def second_grows_after_a_second_end(x: torch.Tensor, a: list[int], b: list[int], z: Iterator[Any]) -> Any:
    for _ in z:
        pass
    found = next(z, "end")
    b.append(7)
    return x + 1, found


def both_grow_twice(x: torch.Tensor, a: list[int], b: list[int], z: Iterator[Any]) -> Any:
    for _ in z:
        pass
    a += [7, 8]
    b += [9, 8]
    found = next(z, "end")
    a += [7, 8]
    b += [9, 8]
    return x + 1, found


def one_grows_before_the_end(x: torch.Tensor, a: list[int], b: list[int], z: Iterator[Any]) -> Any:
    a += [7, 8]
    for _ in z:
        pass
    b += [9, 8]
    return x + 1, next(z, "end")


def one_is_emptied(x: torch.Tensor, a: list[int], b: list[int], z: Iterator[Any]) -> Any:
    found = next(z, "end")
    del a[:]
    found = found, next(z, "end")
    a += [7, 8, 9]
    b += [9, 8]
    return x + 1, found


def a_break_between(x: torch.Tensor, a: list[int], b: list[int], z: Iterator[Any]) -> Any:
    for _ in z:
        pass
    a += [7, 8]
    jitney.graph_break()
    b += [9, 8]
    return x + 1, next(z, "end")


FUNCTIONS = (
    first_grows, second_grows_after_a_second_end, both_grow_twice, one_grows_before_the_end, one_is_emptied,
    a_break_between,
)  # fmt: skip
MADE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "zip": lambda a, b, _: zip(a, b, strict=False),
    "zip the other way": lambda a, b, _: zip(b, a, strict=False),
    "enumerate": lambda a, _, __: enumerate(a),
    "enumerate a zip": lambda a, b, _: enumerate(zip(a, b, strict=False)),
    "zip of enumerate": lambda a, b, _: zip(enumerate(a), b, range(3), strict=False),
    "zip of zip": lambda a, b, _: zip(zip(a, range(5), strict=False), b, strict=False),
    "zip begins with another": lambda a, b, other: zip(other, b, a, strict=False),
    "zip ends with another": lambda a, b, other: enumerate(zip(a, b, other, strict=False)),
    "list": lambda a, _, __: a,
}
OTHERS: tuple[Callable[[], Iterator[Any]], ...] = (
    lambda: iter(range(2)), lambda: iter("abc"), lambda: iter({1: 2, 3: 4}.items()), lambda: itertools.count(3, 2),
)  # fmt: skip


def outcome(fn: Fn, make: Fn, lists: tuple[list[int], list[int]], ways: tuple[Fn, Fn], other: Iterator[Any]) -> str:
    a, b = map(list.copy, lists)
    over_a, over_b = ways[0](a), ways[1](b)
    z = make(over_a, over_b, other)
    found = fn(torch.ones(2), a, b, z)
    left = [next(z, "end") for _ in range(2)]
    a += [100] * 3
    b += [200] * 3
    return f"{found} {left} {next(z, 'end')} {list(over_a)} {list(over_b)} {list(itertools.islice(other, 5))}"


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_each_part_stands_where_eager_leaves_it(fn: Fn, make: Fn) -> None:
    lists = (([1], [10, 20, 30]), ([1, 2], [10]), ([], [1]), ([1, 2], [3, 4]))
    for way, other in itertools.product(((iter, iter), (reversed, reversed), (iter, reversed)), OTHERS):
        if way[0] is not iter and other is not OTHERS[0]:
            continue
        compiled = jitney.compile(fn, backend="eager")
        for each in lists:
            assert outcome(compiled, make, each, way, other()) == outcome(fn, make, each, way, other())


def over_a_list_from_outside(x: torch.Tensor, a: list[int]) -> Any:
    z = iter(a)
    taken = next(z), next(z), next(z)
    a.clear()
    a.append(0)
    return z, a, x + sum(taken)


def over_a_list_of_its_own(x: torch.Tensor, a: list[int]) -> Any:
    a = [*a, 5]
    return over_a_list_from_outside(x, a)


def over_what_was_added(x: torch.Tensor, a: list[int]) -> Any:
    z = iter(a)
    a += [5, 6]
    taken = [next(z) for _ in range(5)]
    del a[1:]
    return z, a, x + sum(taken)


def backwards(x: torch.Tensor, a: list[int]) -> Any:
    z = reversed(a)
    taken = next(z)
    del a[1:]
    return z, a, x + taken


@pytest.mark.parametrize("fn", [over_a_list_from_outside, over_a_list_of_its_own, over_what_was_added, backwards])
def test_an_iterator_that_the_frame_makes_stays_past_the_end_of_a_list_made_shorter(fn: Fn) -> None:
    compiled = jitney.compile(fn, backend="eager")
    for _ in range(2):
        both = []
        for run in (fn, compiled):
            z, a, x = run(torch.ones(2), [1, 2, 3, 4])
            a += range(10, 17)
            both.append(f"{list(z)} {a} {x}")
        assert both[0] == both[1]


@pytest.mark.parametrize("make", [lambda: iter({1: 2}), lambda: iter({3}), lambda: iter({1: 2}.items())])
def test_an_iterator_over_a_table_that_was_at_its_end(make: Any) -> None:
    def fn(x: torch.Tensor, items: Any) -> Any:
        return x + 1, next(items, "end")

    items = make()
    list(items)
    assert jitney.compile(fn, backend="eager")(torch.ones(2), items)[1] == "end"


def test_what_is_left_of_a_range_is_known_in_every_python() -> None:
    numbers = iter(range(0, 10, 2))
    next(numbers), next(numbers)
    assert parts(numbers) == (range(4, 10, 2), 3)
    assert [*numbers] == [4, 6, 8]
    assert parts(numbers)[1] == 0


def taken_once(x: torch.Tensor, numbers: Iterator[int]) -> torch.Tensor:
    return x * next(numbers)


def test_a_range_from_outside_goes_on_from_call_to_call() -> None:
    compiled, x, numbers = jitney.compile(taken_once, backend="eager"), torch.ones(2), iter(range(1, 6))
    assert [compiled(x, numbers)[0].item() for _ in range(3)] == [1, 2, 3]
    assert [*numbers] == [4, 5]


def test_a_loop_over_a_range_ends_whose_turns_are_cut_by_sizes_that_depend_on_data() -> None:
    def fn(x: torch.Tensor, bins: torch.Tensor, rounds: int) -> torch.Tensor:
        found, left = [], torch.ones_like(x, dtype=torch.bool)
        for i in range(rounds):
            if i > 10:
                raise RuntimeError("it goes on for ever")
            here = (x > 0.2 * i) & left
            hit = torch.zeros(5, dtype=torch.bool)
            hit[bins[here]] = True
            found.append(hit.sum())
            left = left & ~here
        return torch.stack(found)

    x, bins = torch.rand(50, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 5
    assert jitney.compile(fn, backend="aot_eager")(x, bins, 4).equal(fn(x, bins, 4))
