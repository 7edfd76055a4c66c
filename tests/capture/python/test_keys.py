"""Keys of dictionaries and items of sets whose hash and equality are written in Python."""

from __future__ import annotations

import collections
import dataclasses
import fractions
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, check_made, check_scenario, observe, t

import jitney

Fn = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Key:
    name: str
    dim: int = 0


@dataclasses.dataclass(frozen=True)
class Nested:
    key: Key
    sizes: tuple[int, ...] = (1, 2)


class Spec:
    """Hashed and compared by a part of it."""

    def __init__(self, name: str, note: str = "") -> None:
        self.name = name
        self.note = note

    def __hash__(self) -> int:
        return hash(("spec", self.name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.name == other.name


class Colliding(Spec):
    def __hash__(self) -> int:
        return -1


class ByIdentity:
    def __hash__(self) -> int:
        return 7


KINDS: dict[str, Fn] = {
    "dataclass": Key,
    "nested": lambda name: Nested(Key(name)),
    "class": Spec,
    "colliding": Colliding,
    "in a tuple": lambda name: (1, Spec(name)),
}
FRESH: dict[str, Fn] = {
    "display": lambda x, key: {key("a"): x, key("b"): x * 2}[key("b")] + 1,
    "comprehension": lambda x, key: {key(n): x * i for i, n in enumerate("aba")}[key("a")] + 1,
    "get": lambda x, key: ({key("a"): x}.get(key("c"), 3), {key("a"): 2}.get(key("a")), x + 1),
    "pop": lambda x, key: (lambda d: (d.pop(key("a")) + 1, d.pop(key("z"), None), len(d)))({key("a"): x, key("b"): 1}),
    "setdefault": lambda x, key: (lambda d: (d.setdefault(key("a"), 5), d.setdefault(key("b"), 6), x + len(d)))(
        {key("a"): 1}
    ),
    "sets": lambda x, key: (
        len({key("a"), key("a"), key("b")}),
        key("a") in {key("a")},
        len(set(map(key, "aab"))),
        x + 1,
    ),
    "adding": lambda x, key: (lambda s: (s.add(key("a")), s.add(key("b")), s.discard(key("a")), len(s), x + 1))(
        {key("a")}
    ),
    "frozenset": lambda x, key: (key("a") in frozenset([key("a")]), x + 1),
    "defaultdict": lambda x, key: (lambda d: (d[key("a")].append(x), len(d[key("a")]), x + 1))(
        collections.defaultdict(list)
    ),
    "hash": lambda x, key: (hash(key("a")) == hash(key("a")), hash((key("a"), 1)) == hash((key("a"), 1)), x + 1),
}


@pytest.mark.parametrize("key", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("fn", FRESH.values(), ids=FRESH)
def test_keys_made_inside(fn: Fn, key: Fn) -> None:
    check(lambda x: fn(x, key), t(), graphs=1, breaks=0)


@pytest.mark.parametrize("key", KINDS.values(), ids=KINDS)
def test_a_table_from_outside(key: Fn) -> None:
    table = {key("a"): 2.0, key("b"): 3.0}
    names = {key("a")}

    def fn(x: torch.Tensor, asked: Any) -> Any:
        seen = [asked in table, key("a") in names, asked in names, key("q") in table, table.get(asked, 1.0)]
        return x * table[key("b")] * seen[-1], seen, len(table)

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for asked in (key("a"), key("b"), key("c"), key("a"), next(iter(table))):
        expected, got = fn(t(), asked), compiled(t(), asked)
        assert torch.equal(expected[0], got[0])
        assert expected[1:] == got[1:]


@pytest.mark.parametrize("key", KINDS.values(), ids=KINDS)
def test_a_table_that_is_filled(key: Fn) -> None:
    def make() -> Any:
        table: dict[Any, Any] = {key("a"): 1}

        def fn(x: torch.Tensor) -> Any:
            for name in "abc":
                table[key(name)] = table.get(key(name), 0) + 2
            if key("b") in table:
                del table[key("b")]
            return x * sum(table.values())

        return fn, lambda: [(repr(type(k)), v) for k, v in table.items()]

    check_made(make, t(), calls=3)


def test_what_a_hash_reads_is_guarded() -> None:
    table = {Spec("a"): 1, Spec("b"): 2}

    def fn(x: torch.Tensor, asked: Spec) -> Any:
        return x * table.get(asked, 0), asked.note

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    asked = Spec("a")
    for name in "abcab":
        asked.name = name
        assert torch.equal(compiled(t(), asked)[0], fn(t(), asked)[0])
    stored = list(table)
    del table[stored[0]]
    stored[0].name = "c"
    table[stored[0]] = 5
    for name in "abc":
        assert torch.equal(compiled(t(), Spec(name))[0], fn(t(), Spec(name))[0])


def test_objects_with_one_hash_that_are_equal_to_themselves_only() -> None:
    first, second = ByIdentity(), ByIdentity()
    table = {first: 1.0, second: 2.0}

    def fn(x: torch.Tensor, asked: ByIdentity) -> Any:
        return x * table.get(asked, 3.0)

    compiled = jitney.compile(fn, backend="eager")
    for asked in (first, second, ByIdentity(), first, ByIdentity()):
        assert torch.equal(compiled(t(), asked), fn(t(), asked))


def test_keys_that_were_changed_since_are_pythons() -> None:
    stale = Spec("a")
    table = {stale: 1}
    stale.name = "b"

    def fn(x: torch.Tensor) -> Any:
        return x + 1, Spec("b") in table, Spec("a") in table, stale in table

    compiled = jitney.compile(fn, backend="eager")
    for _ in range(3):
        assert compiled(t())[1:] == fn(t())[1:]


@pytest.mark.parametrize("kind", [dict.fromkeys, set, frozenset, lambda keys: collections.Counter(dict.fromkeys(keys))])
def test_changed_keys_that_lie_where_they_are_looked_for_are_pythons(kind: Any) -> None:
    """The new hash leads to the old place."""
    old = "a"
    new = next(name for name in map(str, range(1000)) if hash(name) % 8 == hash(old) % 8)
    stale = Spec(old)
    table = kind([stale])
    stale.name = new

    def fn(x: torch.Tensor) -> Any:
        return x + 1, Spec(new) in table, Spec(old) in table, stale in table

    compiled = jitney.compile(fn, backend="eager")
    assert compiled(t())[1:] == fn(t())[1:]


def test_a_key_that_waits_to_be_written_to() -> None:
    def fn(x: torch.Tensor, spec: Spec) -> Any:
        table = {spec: 1}
        spec.name = spec.name + "!"
        return x + 1, Spec(spec.name) in table, {spec: 2}.get(Spec(spec.name)), table.get(spec)

    check(fn, t(), Spec("a"), calls=3, skips=None)


def test_a_hash_that_counts_is_called_as_often_as_in_python() -> None:
    calls: list[str] = []

    class Counting(Spec):
        def __hash__(self) -> int:
            calls.append(self.name)
            return hash(self.name)

    def fn(x: torch.Tensor) -> Any:
        return x + 1, {Counting("a"): 1}[Counting("a")]

    compiled = jitney.compile(fn, backend="eager")
    for _ in range(3):
        calls.clear()
        fn(t())
        expected = list(calls)
        calls.clear()
        compiled(t())
        assert calls == expected


def test_keys_of_the_standard_library_are_told_apart() -> None:
    half, third, fifth = (fractions.Fraction(1, n) for n in (2, 3, 5))
    table = {half: 1.0, third: 2.0, (fifth, Spec("a")): 3.0}

    def fn(x: torch.Tensor, asked: Any) -> Any:
        return x * table.get(asked, 9.0)

    compiled = jitney.compile(fn, backend="eager")
    for asked in (
        half,
        third,
        fractions.Fraction(2, 4),
        fractions.Fraction(1, 7),
        (fifth, Spec("a")),
        (half, Spec("a")),
    ):
        assert torch.equal(compiled(t(), asked), fn(t(), asked))


def test_sizes_that_change_are_keys() -> None:
    def counts(x: torch.Tensor, cache: dict[Any, Any]) -> Any:
        cache[x.shape] = cache.get(x.shape, 0) + 1
        cache[x.shape[0], "rows"] = x.shape[1]
        return x * cache[x.shape], x.shape in cache

    def scenario(compiled: Any) -> Any:
        fn, cache = compiled(counts), {}
        return [fn(t(rows, 2), cache) for rows in (2, 3, 4, 3)], cache

    with observe() as seen:
        check_scenario(scenario)
    assert seen.breaks == []


@dataclasses.dataclass(frozen=True)
class Shape:
    rows: int
    inner: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    rows: int


@pytest.mark.parametrize("kind", [Shape, Size])
def test_frozen_dataclasses_of_numbers_that_change_are_keys(kind: Any) -> None:
    def counts(x: torch.Tensor, count: int, cache: dict[Any, Any], known: set[Any]) -> Any:
        key = kind(count)
        cache[key] = cache.get(key, 0) + 1
        cache[key, count] = x.shape[0]
        known.add(Shape(x.shape[0], (key, count)))
        return x * cache[key], key in cache, (kind(count), count) in cache, len(known)

    def scenario(compiled: Any) -> Any:
        fn, cache, known = compiled(counts), {}, set()
        found = [fn(t(rows, 2), rows + 1, cache, known) for rows in (2, 3, 4, 3, 5)]
        return found, list(cache.values()), sorted(shape.rows for shape in known)

    with observe() as seen:
        check_scenario(scenario)
    assert seen.breaks == []
