"""The order of sets: from outside, changed, made from others, given back."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, check_scenario, t

from jitney.capture.world.set_order import set_in_order, table_size

Compile = Callable[..., Any]
KINDS: dict[str, Callable[[random.Random], Any]] = {
    "int": lambda drawn: drawn.randrange(1000),
    "colliding": lambda drawn: 8 * drawn.randrange(1000),
    "str": lambda drawn: f"name{drawn.randrange(10_000)}",
    "float": lambda drawn: drawn.random(),
}


def changed_set(seed: int, kind: str = "colliding", most: int = 20) -> set[Any]:
    """A set from which items were removed again."""
    drawn = random.Random(seed)
    made = {KINDS[kind](drawn) for _ in range(drawn.randrange(most))}
    for item in sorted(made):
        if drawn.random() < 0.4:
            made.discard(item)
    for _ in range(drawn.randrange(4)):
        made.add(KINDS[kind](drawn))
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_sets_of_the_same_order_are_found(kind: str) -> None:
    """All but a few: what was removed from the others stood in the way of several items."""
    sets = [changed_set(seed, kind, 60) for seed in range(300)]
    found = [set_in_order([*held], table_size(held)) for held in sets]
    assert sum(made is None for made in found) < 10
    assert all(made is None or [*made] == [*held] for made, held in zip(found, sets, strict=True))


def _add(x: torch.Tensor, s: set[Any]) -> Any:
    s.add(33)
    s.add(10)
    return x + 1, [*s]


def _change(x: torch.Tensor, s: set[Any]) -> Any:
    s.update([16, 24])
    s.discard(16)
    s |= {8, 0, 72}
    s.update((640, 1), {3, 11}, iter([5, 13]))
    s -= {24, 8}
    s ^= {0, 5, 40}
    return x + 1, s, len(s), 72 in s, sorted(s), max(s)


def _join(x: torch.Tensor, s: set[Any]) -> Any:
    other = {8, 0, 72, 1}
    s |= other
    s.intersection_update(sorted(s)[2:], other | {v for v in range(0, 8000, 8)})
    other.clear()
    s.difference_update((16, 8))
    s ^= {9, 1, 17}
    s.update([640], {3, 11})
    return x + 1, len(s)


def _pop(x: torch.Tensor, s: set[Any]) -> Any:
    s.add(48)
    return x + 1, s.pop(), s


def _merged(x: torch.Tensor, s: set[Any]) -> Any:
    first, second, third, fourth = {1, 9}, set[Any](), {8}, {16, 24}
    first |= s
    second.update(s, [5])
    third ^= s
    fourth.symmetric_difference_update(s)
    return x + 1, [*first], [*second], [*third], [*fourth]


PROGRAMS: dict[str, Callable[[torch.Tensor, set[Any]], Any]] = {
    "read": lambda x, s: (x + 1, [*s], str(s), {v: 1 for v in s}),
    "returned": lambda x, s: (x + 1, s),
    "copies": lambda x, s: (x + 1, [*s.copy()], [*set(s)], [*frozenset(s)], tuple(set(s))),
    "union": lambda x, s: (x + 1, s | {41, 1}, [*(s | {41, 9})], [*s.union([64], (1,))]),
    "from a new set": lambda x, s: (x + 1, [*({1, 9, 17} | s)], [*(s & {8, 16, 24})], [*(s - {8})], s ^ {1, 8}),
    "copied by syntax": lambda x, s: (x + 1, [*{*s}], [*{*s, 3}], [*copy.copy(s)], [*copy.deepcopy(s)]),
    "of a frozen set": lambda x, s: (x + 1, [*set(frozenset(s))], [*{*frozenset(s), 5}]),
    "merged into a new set": _merged,
    "differences": lambda x, s: (x + 1, [*s.difference([8])], [*(s - {8, 16, 24, 32})], [*s.difference()]),
    "intersections": lambda x, s: (x + 1, [*(s & s)], [*s.intersection()], [*s.intersection(sorted(s)[1:])]),
    "add": _add,
    "change": _change,
    "join": _join,
    "pop": _pop,
    "text": lambda x, s: (x + 1, str(s | {3}), f"{s}"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sets_have_the_order_that_they_have_in_python(name: str) -> None:
    program = PROGRAMS[name]

    def scenario(compile: Compile) -> Any:
        called = compile(program)
        results = []
        for seed in range(6):
            held = changed_set(seed)
            results.append((*map(_listed, called(t(), held)), [*held]))
        return results

    check_scenario(scenario)


def _listed(value: Any) -> Any:
    return [*value] if isinstance(value, (set, frozenset)) else value


@pytest.mark.parametrize("seed", range(12))
def test_a_set_that_the_frame_makes_is_returned_in_its_order(seed: int) -> None:
    drawn = random.Random(seed)
    items = [8 * drawn.randrange(100) for _ in range(8)]

    def fn(x: torch.Tensor) -> Any:
        made = set()
        for item in items:
            made.add(item)
        for item in items[1:4]:
            made.discard(item)
        return x + 1, made

    check_scenario(lambda compile: [_listed(v) for v in compile(fn)(t())])


def test_a_grown_set_is_read_without_a_break() -> None:
    held = set()
    for i in range(6):
        held.add(f"name{i}")
    check(lambda x: (x + 1, "name1" in held, [*held], sorted(held), held - {"name2"}), t(), breaks=0)


def test_sets_of_tensors_from_outside() -> None:
    tensors = {torch.ones(2) * i for i in range(30)}
    several = {torch.ones(2), torch.zeros(2)}

    def fn(x: torch.Tensor) -> Any:
        return x + 1, [*tensors], len(tensors), [*several]

    check_scenario(lambda compile: compile(fn)(t()))


def test_a_set_that_was_written_to_keeps_what_was_in_it_where_it_is() -> None:
    def scenario(compile: Compile) -> Any:
        held = changed_set(3, "str")
        called = compile(lambda x: (x, held.add("another"), held.discard("absent")))
        called(t())
        first = [*held]
        called(t())
        return first, [*held], [*held.copy()]

    check_scenario(scenario)


def test_sets_are_changed_without_a_break() -> None:
    seen = changed_set(5)

    def fn(x: torch.Tensor, name: int) -> torch.Tensor:
        seen.add(name)
        seen.update([name + 1], {name + 2})
        seen.discard(8)
        others = seen - {16}
        seen.__ior__({name + 3} & others)
        return x + len(seen)

    check(fn, t(), 7, breaks=0)


def test_sets_of_a_frozen_set_from_outside() -> None:
    def program(x: torch.Tensor, s: frozenset[Any]) -> Any:
        return x + 1, [*set(s)], [*{*s}], [*{*s, 5}], frozenset(s) is s, [*frozenset(s)], [*s.union([3])]

    def scenario(compile: Compile) -> Any:
        called = compile(program)
        return [called(t(), frozenset(changed_set(seed)))[1:] for seed in range(20)]

    check_scenario(scenario)


def test_a_frozen_set_from_outside_stays_itself() -> None:
    def program(x: torch.Tensor, a: Any, b: Any, held: list[Any]) -> Any:
        held.append(a)
        return x * 2 if a is b else x * 3, a, {a: 1}[b], id(a) == id(b), 9 in a, [v for v in a if v in b]

    def scenario(compile: Compile) -> Any:
        called = compile(program)
        first, second, third = (frozenset((1, 9, 17)) for _ in range(3))
        held = list[Any]()
        results = [called(t(), a, b, held) for a, b in ((first, first), (second, third), (first, second))]
        return [(*r[:1], *r[2:]) for r in results], [r[1] is h for r, h in zip(results, held, strict=True)]

    check_scenario(scenario)
