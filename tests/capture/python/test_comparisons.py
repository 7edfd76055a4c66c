"""What is compared, and by whom: tensors with what is no number, objects whose classes compare, inside C code too."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import enum
import functools
import heapq
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, t

import jitney

Fn = Callable[..., Any]


class Colour(enum.Enum):
    RED = 1


class Plain:
    pass


@functools.total_ordering
class Version:
    """Compared, and never hashed by what it holds."""

    def __init__(self, major: int) -> None:
        self.major = major

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.major == other.major

    def __lt__(self, other: Version) -> bool:
        return self.major < other.major


@dataclasses.dataclass(order=True)
class Job:
    priority: int
    name: str = ""


NO_NUMBERS: dict[str, Any] = {
    "text": "auto", "None": None, "list": [1], "tuple": (), "dict": {}, "dtype": torch.float32, "class": int,
    "member": Colour.RED, "object": Plain(), "bytes": b"a", "device": torch.device("cpu"), "size": torch.Size([2]),
}  # fmt: skip


@pytest.mark.parametrize("other", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_tensor_is_unequal_to_what_is_no_number(other: Any) -> None:
    def fn(x: torch.Tensor, y: Any) -> Any:
        return x + 1, x == y, x != y, y == x, y != x, x in [y], (x, y) == (x, y)

    check(fn, t(), other, graphs=1, breaks=0)


@pytest.mark.parametrize("compare", [operator.lt, operator.ge], ids=["lt", "ge"])
def test_a_tensor_has_no_order_with_text(compare: Fn) -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            return compare(x, "a")
        except TypeError as error:
            return str(error), x + 1

    check(fn, t(), graphs=1, breaks=0)
    check(fn, torch.nn.Parameter(t()), graphs=1, breaks=0)


def test_a_tensor_is_compared_with_numbers_all_the_same() -> None:
    check(lambda x: (x == 1, 1 != x, x == True, x == x[0], x == 1.5), t(), graphs=1, breaks=0)  # noqa: E712


def test_patterns_compare_tensors_with_text() -> None:
    def run(op: Any) -> Any:
        match op:
            case ["scale", x, by]:
                return x * by
            case [x, "twice"]:
                return x * 2
            case [x, y]:
                return x + y

    def fn(x: torch.Tensor) -> Any:
        return run(["scale", x, 3]), run([x, "twice"]), run((x, x))

    check(fn, t(), graphs=1, breaks=0)


ORDERED: dict[str, Fn] = {
    "sorted": lambda *v: [w.major for w in sorted(v)],
    "sorted reversed": lambda *v: [w.major for w in sorted(v, reverse=True)],
    "sort": lambda *v: (lambda made: (made.sort(), [w.major for w in made]))(list(v)),
    "max": lambda *v: (max(v).major, max(*v).major),
    "min": lambda *v: (min(v).major, min(*v, Version(0)).major),
    "one by one": lambda *v: (
        max(w for w in v).major,
        min((w, i) for i, w in enumerate(v))[0].major,
        min(iter(v)).major,
    ),
    "lists": lambda *v: ([*v] == [*v], [v[0]] < [v[1]], [v[0], 1] != [v[0], 2], [*v] == [v[0]]),
    "tuples": lambda *v: (
        (v[0], 1) > (v[1], 0),
        (v[0], (v[1],)) == (v[0], (Version(9),)),
        max((v[0], 1), (v[0], 2))[1],
    ),
    "index": lambda *v: ([*v].index(Version(1)), [*v].count(v[1]), Version(7) in v),
    "heap": lambda *v: (lambda heap: (heapq.heapify(heap), heapq.heappop(heap).major))(list(v)),
    "bisect": lambda *v: bisect.bisect_left([Version(0), Version(2)], v[0]),
}


@pytest.mark.parametrize("fn", ORDERED.values(), ids=ORDERED)
def test_objects_are_ordered_by_their_own_methods(fn: Fn) -> None:
    def made(x: torch.Tensor) -> Any:
        return x + 1, fn(Version(3), Version(1), Version(2))

    def given(x: torch.Tensor, versions: list[Version]) -> Any:
        return x + 1, fn(*versions)

    check(made, t(), graphs=1, breaks=0)
    check(given, t(), [Version(2), Version(1), Version(4)], graphs=1, breaks=0)


KEYED: dict[str, Fn] = {
    "sorted": lambda *v: [i for _, i in sorted(zip(v, range(9), strict=False), key=lambda pair: pair[0])],
    "sorted reversed": lambda *v: [w.major for w in sorted(v, key=lambda w: (0, w), reverse=True)],
    "sort": lambda *v: (lambda made: (made.sort(key=lambda w: w), [w.major for w in made]))(list(v)),
    "max": lambda *v: max(enumerate(v), key=operator.itemgetter(1))[0],
    "min": lambda *v: min(((w, 1) for w in v), key=lambda pair: pair[0])[0].major,
    "by number": lambda *v: (max((w for w in v), key=lambda w: w.major).major, min(v, key=lambda w: -w.major).major),
    "none": lambda *v: max([], key=lambda w: v[0], default=3),
}


@pytest.mark.parametrize("fn", KEYED.values(), ids=KEYED)
def test_keys_are_ordered_by_their_own_methods(fn: Fn) -> None:
    def given(x: torch.Tensor, versions: list[Version]) -> Any:
        return x + 1, fn(*versions), fn(Version(3), Version(1), Version(2))

    check(given, t(), [Version(2), Version(1), Version(4), Version(4)], graphs=1, breaks=0)


def test_the_order_of_objects_is_asked_anew_at_each_call() -> None:
    def fn(x: torch.Tensor, jobs: list[Job]) -> Any:
        first = min(jobs)
        first.priority += 10
        return x * first.priority, [job.name for job in sorted(jobs)], sorted(jobs)

    check(fn, t(), [Job(1, "a"), Job(5, "b"), Job(2, "c")], calls=4, breaks=0)


def test_what_a_comparison_does_is_done() -> None:
    log: list[int] = []

    class Noisy:
        def __init__(self, value: int) -> None:
            self.value = value

        def __lt__(self, other: Noisy) -> bool:
            log.append(self.value)
            return self.value < other.value

    def fn(x: torch.Tensor) -> Any:
        return x + 1, [n.value for n in sorted([Noisy(2), Noisy(3), Noisy(1)])], min([Noisy(2), Noisy(1)]).value

    expected = fn(t())[1:], list(log)
    log.clear()
    got = jitney.compile(fn, backend="eager", fullgraph=True)(t())[1:]
    assert (got, log) == expected


def test_an_error_in_a_comparison_is_the_programs() -> None:
    class Refusing:
        def __lt__(self, other: object) -> bool:
            raise ValueError("never")

    def fn(x: torch.Tensor) -> Any:
        try:
            sorted([Refusing(), Refusing()])
        except ValueError as error:
            return str(error), x + 1

    check(fn, t(), graphs=1, breaks=0)


TWINS: dict[str, Fn] = {
    "heap of pairs": lambda x: _best_first(x),
    "heapq.nlargest": lambda x: (x + 1, heapq.nlargest(2, [3, 1, 2]), heapq.nsmallest(1, "cab")),
    "heapq.heapreplace": lambda x: x + heapq.heapreplace([1, 2], 3),
    "heapq.merge": lambda x: (x + 1, list(heapq.merge([1, 4], [2, 3]))),
    "bisect": lambda x: x + bisect.bisect([1, 3, 5], 3) + bisect.bisect_left([1, 3], 3, lo=1),
    "insort": lambda x: (lambda keys: (bisect.insort(keys, 2), keys, x + 1))([1, 3]),
    "Counter": lambda x: (x + 1, collections.Counter("aab"), collections.Counter([1, 1]).most_common(1)),
    "operator": lambda x: (x + operator.countOf([1, 2, 1], 1), operator.indexOf([1, 2], 2)),
}  # fmt: skip


def _best_first(x: torch.Tensor) -> Any:
    heap: list[Any] = []
    for order, score in enumerate([3, 1, 2]):
        heapq.heappush(heap, (score, order, x * score))
    score, _, best = heapq.heappop(heap)
    return best + score, heapq.heappushpop(heap, (0, 0, x))[0], len(heap)


@pytest.mark.parametrize("fn", TWINS.values(), ids=TWINS)
def test_c_functions_that_the_library_also_has_in_python(fn: Fn) -> None:
    check(fn, t(), graphs=1, breaks=0)


def test_a_heap_from_outside() -> None:
    def fn(x: torch.Tensor, heap: list[Any]) -> Any:
        heapq.heappush(heap, (2, x * 2))
        return heapq.heappop(heap)[1] + 1

    check(fn, t(), [(1, t()), (3, t())], calls=3)


def test_a_twin_that_raises_raises_what_c_code_does() -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            heapq.heappop([])
        except IndexError as error:
            return str(error), x + 1

    check(fn, t())
