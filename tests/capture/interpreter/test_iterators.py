"""C iterators whose callback breaks the graph: no element is lost, none comes twice."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from helpers import check, check_scenario, graph_break, observe, t

import jitney

Loop = Callable[[Any], Any]


def numbers() -> list[torch.Tensor]:
    return [torch.tensor(1.0), torch.tensor(2.0), torch.tensor(4.0), torch.tensor(4.0)]


def arrays() -> list[Any]:
    return [np.arange(3.0), np.ones(2), np.full(2, 5.0), np.ones(1)]


def comprehension(items: Iterable[Any]) -> Any:
    return [v for v in items]  # noqa: C416 (the loop is what is tested)


def loop(items: Iterable[Any]) -> Any:
    total, count = 0.0, 0
    for v in items:
        total += v
        count += 1
    return total, count


def last_of_enumerate(items: Iterable[Any]) -> Any:
    seen: tuple[Any, ...] = ()
    for i, v in enumerate(items, 5):
        seen = (*seen, i, v)
    return seen


def zipped(items: Iterable[Any]) -> Any:
    left = iter("abcdef")
    return [(a, v) for a, v in zip(left, items, strict=False)], list(left)


def zipped_twice(items: Iterable[Any]) -> Any:
    """Both sides are one iterator: each tuple takes two elements."""
    one = iter(items)
    return [pair for pair in zip(one, one, strict=False)]  # noqa: C416 (the loop is what is tested)


def cut_short(items: Iterable[Any]) -> Any:
    one = iter(items)
    for v in one:  # noqa: B007 (read below)
        break
    return v, list(one)


def by_hand(items: Iterable[Any]) -> Any:
    one = iter(items)
    return next(one), one.__next__(), functools.partial(next, one)(), list(one)  # type: ignore[attr-defined]


def delegated(items: Iterable[Any]) -> Any:
    def inner() -> Any:
        yield from items

    return [v for v in inner()]  # noqa: C416 (the loop is what is tested)


def unpacked(items: Iterable[Any]) -> Any:
    first, *rest = items
    return first, rest


LOOPS: list[Loop] = [
    comprehension,
    loop,
    last_of_enumerate,
    zipped,
    zipped_twice,
    cut_short,
    by_hand,
    delegated,
    unpacked,
]


@pytest.mark.parametrize("callback", [float, int, torch.Tensor.item, lambda t: t.item()])
@pytest.mark.parametrize("use", LOOPS)
def test_map_made_inside(use: Loop, callback: Any) -> None:
    check(lambda tensors: use(map(callback, tensors)), numbers())


@pytest.mark.parametrize("callback", [len, sum, max])
@pytest.mark.parametrize("use", LOOPS)
def test_map_over_arrays_made_inside(use: Loop, callback: Any) -> None:
    check(lambda items: use(map(callback, items)), arrays())


@pytest.mark.parametrize("use", LOOPS)
def test_map_given_as_an_argument(use: Loop) -> None:
    check(use, map(float, numbers()), calls=1)


@pytest.mark.parametrize("use", LOOPS)
def test_map_over_an_iterator_from_outside(use: Loop) -> None:
    check(lambda items: use(map(float, items)), iter(numbers()), calls=1)


MAKERS: dict[str, Callable[[list[Any]], Any]] = {
    "filter": lambda ts: filter(float, ts),
    "filterfalse": lambda ts: itertools.filterfalse(float, [*ts, ts[0] - 1]),
    "takewhile": lambda ts: itertools.takewhile(float, [*ts, ts[0] - 1, ts[0]]),
    "dropwhile": lambda ts: itertools.dropwhile(float, [*ts, ts[0] - 1, ts[0]]),
    "starmap": lambda ts: itertools.starmap(pow, zip(map(float, ts), (1, 2, 3, 4), strict=True)),
    "accumulate": lambda ts: itertools.accumulate(map(float, ts)),
    "accumulate with max": lambda ts: itertools.accumulate(ts, max),
    "chain": lambda ts: itertools.chain(map(float, ts), map(int, ts)),
    "chain of a list of iterators": lambda ts: itertools.chain.from_iterable([map(float, ts), map(int, ts)]),
    "islice": lambda ts: itertools.islice(map(float, ts), 1, None, 2),
    "zip_longest": lambda ts: itertools.zip_longest(map(float, ts), (1,)),
    "zip": lambda ts: zip(map(float, ts), map(int, ts), strict=True),
    "compress": lambda ts: itertools.compress("abcd", map(float, ts)),
    "product": lambda ts: itertools.product(map(float, ts), "ab"),
    "cycle": lambda ts: itertools.islice(itertools.cycle(map(float, ts)), 7),
    "map of a map": lambda ts: map(float, map(torch.neg, ts)),
    "a call until a value": lambda ts: iter(functools.partial(next, map(float, ts), None), None),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("use", [comprehension, last_of_enumerate, zipped])
def test_other_c_iterators(use: Loop, name: str) -> None:
    check(lambda tensors: use(MAKERS[name](tensors)), numbers())


@pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support")  # ``check`` copies the arguments
@pytest.mark.parametrize("name", [n for n in MAKERS if n != "a call until a value"])
def test_other_c_iterators_given_as_arguments(name: str) -> None:
    check(comprehension, MAKERS[name](numbers()), calls=1)


def test_an_iterator_that_cannot_be_made_again_leaves_the_frame_eager() -> None:
    check(lambda tensors: [float(b) - a for a, b in itertools.pairwise(map(float, tensors))], numbers(), skips=1)


def test_groups() -> None:
    def fn(items: list[Any]) -> Any:
        return [(k, [float(a.sum()) for a in group]) for k, group in itertools.groupby(items, key=len)]

    check(fn, arrays())


def test_groups_of_what_a_callback_gives() -> None:
    def fn(tensors: list[torch.Tensor]) -> Any:
        return [(k, [v for v in group]) for k, group in itertools.groupby(map(float, tensors))]  # noqa: C416

    check(fn, numbers())


def test_items_of_arrays_in_a_chain() -> None:
    check(lambda items: [float(v) for v in itertools.chain.from_iterable(items)], arrays())


@pytest.mark.parametrize(
    "given", [lambda m: [m, "cd"], lambda m: ("cd", m), lambda m: {m: 0}, lambda m: {0: m}.values()]
)
def test_iterators_inside_the_argument_of_a_call(given: Callable[[Any], Any]) -> None:
    """``dict`` takes its pairs from iterators that the container holds."""
    check(lambda tensors: dict(given(map(float, tensors))), numbers()[:2])


def test_iterator_from_outside_beside_one_that_breaks() -> None:
    def fn(tensors: list[torch.Tensor], names: Any) -> Any:
        return [(n, v) for n, v in zip(names, map(float, tensors), strict=False)], list(names)

    check(fn, numbers(), iter(range(10)), calls=1)
    check(fn, numbers(), enumerate("abcdefgh"), calls=1)


def test_callback_that_breaks_only_late() -> None:
    """What the graph took before the break stays taken."""

    def fn(tensors: list[torch.Tensor]) -> Any:
        out = []
        for v in map(float, [1, "2", *tensors, "3"]):  # type: ignore[list-item]
            out.append(v)
        return out

    check(fn, numbers())


def test_error_in_a_callback_after_a_break() -> None:
    def fn(items: list[Any]) -> Any:
        out, one = [], map(float, items)
        try:
            for v in one:
                out.append(v)
        except ValueError:
            out.append(-1.0)
        return out, list(one)

    check(fn, [torch.tensor(1.0), "no number", torch.tensor(3.0)])


@pytest.mark.parametrize(
    "name", ["chain", "cycle", "islice", "zip_longest", "accumulate", "takewhile", "groupby", "product"]
)
def test_iterators_halfway_at_a_break(name: str) -> None:
    makers: dict[str, Callable[[], Any]] = {
        "chain": lambda: itertools.chain((1, 2), (3,), (4, 5)),
        "cycle": lambda: itertools.islice(itertools.cycle((1, 2, 3)), 8),
        "islice": lambda: itertools.islice(range(20), 1, 15, 3),
        "zip_longest": lambda: itertools.zip_longest((1,), (2, 3, 4), (5, 6, 7)),
        "accumulate": lambda: itertools.accumulate((1, 2, 3, 4), initial=10),
        "takewhile": lambda: itertools.takewhile(bool, (1, 2, 3, 0, 4)),
        "groupby": lambda: (k for k, _ in itertools.groupby((1, 1, 2, 2, 3, 4, 4))),
        "product": lambda: itertools.product("ab", (1, 2)),
    }

    def fn(x: torch.Tensor) -> Any:
        one = makers[name]()
        first = next(one), next(one)
        graph_break()
        third = next(one)
        graph_break()
        return x + 1, first, third, list(one)

    check(fn, torch.ones(2))


def test_tee_gives_what_it_reads_twice() -> None:
    def fn(x: torch.Tensor) -> Any:
        first, second, third = itertools.tee((x * i for i in range(3)), 3)
        next(first)
        return sum(first), list(second), next(third), x + len(itertools.tee([1]))

    check(fn, torch.ones(3), graphs=1, breaks=0)


class Countdown:
    """An iterator that a program has written, without ``__iter__``."""

    def __init__(self, start: int) -> None:
        self.left = start

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


def test_an_iterator_of_the_programs_own_lives_across_a_break() -> None:
    def fn(x: torch.Tensor) -> Any:
        made = Countdown(3)
        first = next(made)
        graph_break()
        return x + first, next(made), made.left

    check(fn, torch.ones(2), breaks=1)


def over_items(items: list[int]) -> Any:
    return [(item, print("between"))[0] for item in items]


def over_pairs(items: list[int]) -> Any:
    return [(pair, print("between"))[0] for pair in enumerate(zip(items, reversed(items), strict=True))]


def half_way(items: list[int]) -> Any:
    iterator = iter(items)
    first = next(iterator), next(iterator)
    print("between")
    return first, list(iterator)


class Keeps:
    def __init__(self, owner: list[Any]) -> None:
        self.iterator = iter(owner)


def in_its_own_list(items: list[Any]) -> Any:
    made: list[Any] = []
    kept = Keeps(made)
    made += [kept, 2, 3]
    next(kept.iterator)
    print("between")
    return list(kept.iterator), len(items)


def test_iterator_that_has_ended_before_its_list_grows() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> Any:
        iterator = iter(items)
        graph_break()
        seen = list(iterator)
        items += [7, 8, 9]
        graph_break()
        return x + 1, seen, list(iterator)

    check(fn, t(), [1, 2])


@pytest.mark.parametrize("program", [over_items, over_pairs, half_way, in_its_own_list])
def test_loop_over_a_list_that_has_grown_since_the_break_before(program: Any) -> None:
    def fn(x: torch.Tensor, items: list[int]) -> Any:
        made: list[int] = []
        print("before")
        made += [1, 2, 3]
        items.append(4)
        items.insert(0, 5)
        return x + 1, program(made), program(items), made

    check(fn, t(), [])


@pytest.mark.parametrize("start", [(), (5,), (3, 2), (10, -1), (2**70,), (0.5,), (Fraction(1, 3),), (True,)])
def test_counter_that_a_class_holds(start: tuple[Any, ...]) -> None:
    class Numbered:
        numbers = itertools.count(*start)

        def __init__(self) -> None:
            self.number = next(self.numbers)

    def fn(x: torch.Tensor) -> Any:
        first, second = Numbered(), Numbered()
        return x * float(second.number), first.number, list(zip(itertools.islice(Numbered.numbers, 2), "ab"))

    def scenario(compile: Any) -> Any:
        Numbered.numbers = itertools.count(*start)
        called = compile(fn)
        out = [called(t()) for _ in range(4)]
        Numbered.numbers = itertools.count(7.5)  # type: ignore[assignment]
        return [*out, called(t()), next(Numbered.numbers)]

    check_scenario(scenario)


def test_counter_that_has_come_far_compiles_twice() -> None:
    counter = itertools.count()
    compiled = jitney.compile(lambda x: x * next(counter), backend="eager", fullgraph=True)
    with observe() as seen:
        assert [compiled(torch.ones(())).item() for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    assert len(seen.graphs) <= 3


class Tens(tuple[int, ...]):
    def __iter__(self) -> Any:
        return iter([10, 20, 30])


class Numbered(list[Any]):
    def __iter__(self) -> Any:
        return enumerate(super().__iter__())

    def __reversed__(self) -> Any:
        return iter([100])


def past_the_end_of_a_zip(run: Callable[..., Any]) -> Any:
    def fn(x: torch.Tensor, pairs: Any) -> Any:
        return x + 1, next(pairs, "end"), next(pairs, "end"), next(pairs, "end")

    fn, found = run(fn), []
    for _ in range(3):
        left = iter(range(10))
        found.append((fn(torch.ones(2), zip(left, iter(()))), list(left)))
    return found


def a_strict_zip_that_raises(run: Callable[..., Any]) -> Any:
    def fn(x: torch.Tensor, pairs: Any) -> Any:
        try:
            found = next(pairs, "end")
        except ValueError as error:
            found = str(error)
        return x + 1, found

    fn = run(fn)
    left = iter(range(3))
    pairs = zip(left, iter(()), strict=True)
    return [fn(torch.ones(2), pairs) for _ in range(5)], list(left)


def a_subclass_with_its_own_iter(run: Callable[..., Any]) -> Any:
    found = []
    numbered = Numbered([1, 2])
    for items in (tuple.__iter__(Tens((1, 2, 3))), list.__iter__(numbered), list.__reversed__(numbered)):
        fn = run(lambda x, items: (x + 1, next(items, "end")))
        found += [fn(torch.ones(2), items) for _ in range(4)]
    return found


def a_subclass_that_numbers_its_items(run: Callable[..., Any]) -> Any:
    def fn(x: torch.Tensor, items: list[Any]) -> torch.Tensor:
        for number, item in items:  # type: ignore[misc]
            x = x * 2 + number * item
            print(end="")
        return x

    fn = run(fn)
    return [fn(torch.ones(2), Numbered([1, 2, 3])) for _ in range(3)]


def a_list_that_becomes_shorter(run: Callable[..., Any]) -> Any:
    def fn(x: torch.Tensor, items: Any, owner: list[int]) -> torch.Tensor:
        first = next(items)
        owner.clear()
        owner.append(3)
        return x + first

    fn, found = run(fn), []
    for _ in range(3):
        owner = [1, 2, 3, 4]
        items = iter(owner)
        made = fn(torch.ones(2), items, owner)
        owner += [5, 6, 7]
        found.append((made, list(items)))
    return found


@pytest.mark.parametrize(
    "program",
    [
        past_the_end_of_a_zip, a_strict_zip_that_raises, a_subclass_with_its_own_iter,
        a_subclass_that_numbers_its_items, a_list_that_becomes_shorter,
    ],
)  # fmt: skip
def test_they_stand_where_eager_leaves_them(program: Callable[..., Any]) -> None:
    compiled = program(lambda fn: jitney.compile(fn, backend="eager"))
    assert str(compiled) == str(program(lambda fn: fn))
