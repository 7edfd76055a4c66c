"""Generators that wait in a ``try`` or ``with`` are closed where what holds them is dropped, as in CPython."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import FRONTEND, check, check_logged, check_scenario, compile_fn, observe, outcome, t

from jitney.capture.waiting_generators import WaitingGenerators

Log = list[Any]
Holder = Callable[[Log], None]


class Plain:
    held: Any


class Slots:
    __slots__ = ("held",)


class Owner:
    """Holds a generator that waits, from when it is made."""

    def __init__(self, log: Log, tag: Any = "closed") -> None:
        self.log = log
        self.tag = tag
        self.generator = started(log, tag)

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *error: object) -> None:
        self.log.append("left")

    def __call__(self, value: Any) -> Any:
        self.log.append("called")
        return value

    def __add__(self, other: Any) -> Any:
        self.log.append("added")
        return other

    @property
    def answer(self) -> int:
        self.log.append("answer")
        return 3

    def itself(self) -> Owner:
        return self


def numbers(log: Log, tag: Any = "closed") -> Iterator[int]:
    try:
        yield from range(5)
    finally:
        log.append(tag)


def started(log: Log, tag: Any = "closed") -> Iterator[int]:
    made = numbers(log, tag)
    next(made)
    return made


@contextlib.contextmanager
def scope(log: Log) -> Iterator[int]:
    try:
        yield 1
    finally:
        log.append("closed")


def instance(log: Log, kind: type = Plain) -> Any:
    made = kind()
    made.held = started(log)
    return made


def variable(log: Log) -> Any:
    generator = started(log)
    return lambda: generator


def entered(log: Log) -> Any:
    manager = scope(log)
    manager.__enter__()
    return manager


def stack(log: Log) -> Any:
    made = contextlib.ExitStack()
    made.enter_context(scope(log))
    return made


def outer(log: Log) -> Any:
    def loop() -> Iterator[int]:
        for number in numbers(log):  # noqa: UP028  # a loop of the program's
            yield number

    made = loop()
    next(made)
    return [made]


KEPT: list[Any] = []
HOLDERS: dict[str, Callable[[Log], Any]] = {
    "generator": started,
    "list": lambda log: [started(log)],
    "list in a list": lambda log: [[started(log)], 1],
    "tuple": lambda log: (1, started(log)),
    "tuple in a dictionary": lambda log: {1: (2, [started(log)])},
    "deque": lambda log: collections.deque([started(log)]),
    "set": lambda log: {started(log)},
    "instance": instance,
    "slots": lambda log: instance(log, Slots),
    "module": lambda log: instance(log, torch.nn.Module),
    "variable": variable,
    "default": lambda log: lambda held=started(log): held,
    "partial": lambda log: functools.partial(print, started(log)),
    "method": lambda log: started(log).__next__,
    "method of an owner": lambda log: Owner(log).itself,
    "iterators": lambda log: [zip(started(log), itertools.chain([1], started(log, "second")))],
    "outer generator": outer,
    "manager": entered,
    "list of a manager": lambda log: [entered(log)],
    "exit stack": stack,
    "several": lambda log: [started(log, "first"), started(log, "second")],
    "several in a dictionary": lambda log: {i: [started(log, i)] for i in range(3)},
}


def _overwritten(log: Log, make: Callable[[Log], Any]) -> None:
    held = make(log)
    log.append("held")
    held = None
    log.append(held)


def _deleted(log: Log, make: Callable[[Log], Any]) -> None:
    held = make(log)
    other = [held]
    del held
    log.append("held")
    del other
    log.append("after")


def _returned(log: Log, make: Callable[[Log], Any]) -> None:
    def inner() -> None:
        held = make(log)
        log.append(held is None)

    inner()
    log.append("after")


def _rebound(log: Log, make: Callable[[Log], Any]) -> None:
    held = None
    for turn in range(2):
        held = make(log)
        log.append(turn)
    log.append(held is None)


def _of_an_attribute(log: Log, make: Callable[[Log], Any]) -> None:
    owner = Plain()
    owner.held = make(log)
    log.append("held")
    owner.held = None
    log.append("after")


def _last(log: Log, make: Callable[[Log], Any]) -> None:
    held = make(log)
    log.append(held is None)


DROPS = [_overwritten, _deleted, _returned, _rebound, _of_an_attribute, _last]


@pytest.mark.parametrize("drop", DROPS, ids=lambda fn: fn.__name__.strip("_"))
@pytest.mark.parametrize("holder", HOLDERS)
def test_generator_is_closed_where_its_holder_is_dropped(holder: str, drop: Any) -> None:
    def program(log: Log) -> Any:
        def fn(x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            drop(log, HOLDERS[holder])
            return y * 2

        return fn

    check_logged(program)


@pytest.mark.parametrize("holder", ["list", "instance", "variable", "outer generator", "exit stack", "several"])
def test_frame_that_drops_a_holder_is_one_graph(holder: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        log: Log = []
        held: Any = HOLDERS[holder](log)
        y = x + 1
        del held
        return y * len(log), log

    if FRONTEND != "jitney":
        pytest.skip("asks for graphs")
    with observe() as seen:
        got = compile_fn(fn)(t())
    assert got[1] == fn(t())[1] and not seen.skips and not seen.breaks and len(seen.graphs) == 1


def test_what_holds_nothing_of_a_generator_is_not_let_go_with_it() -> None:
    def fn(x: torch.Tensor) -> Any:
        log: Log = []
        items, owner = [None, x * 2], Plain()
        owner.held, owner.result = None, x * 3

        def first() -> Any:
            for number in numbers(log):
                return number

        first()
        items.append(x + 1)
        owner.held, items[0] = items, x * 5
        return items, owner.result, owner.held[0], vars(owner), log

    check(fn, t(), graphs=1)


def _temporary(log: Log) -> None:
    Owner(log).itself().itself()
    log.append(Owner(log).answer)
    log.append(Owner(log) + 1)
    log.append(Owner(log)(2))
    log.append([Owner(log, i).tag for i in range(3)])
    log.append(sum(Owner(log, i).tag for i in range(3)))
    for owner in map(functools.partial(Owner, log), "ab"):
        log.append(owner.tag)


def _arguments(log: Log) -> None:
    def inner(*args: Any, **kwargs: Any) -> None:
        log.append("inner")

    inner(started(log))
    log.append("positional")
    inner([started(log)], key=[started(log, "keyword")])
    log.append("after")


def _left(log: Log) -> None:
    with Owner(log):
        log.append("inside")
    with contextlib.ExitStack() as exits:
        exits.enter_context(scope(log))
        exits.pop_all()
        log.append("inside")


def _container_changes(log: Log) -> None:
    items = [started(log, i) for i in range(5)]
    items[0] = started(log, "new")
    items.pop()
    log.append("popped")
    items[1:2] = []
    log.append("cut")
    items = items[:1]
    log.append("sliced")
    table = {"a": [started(log, "a")], "b": [started(log, "b")]}
    table["a"] = []
    table.pop("b")
    log.append("popped")
    row = collections.deque([[started(log, "deque")]], maxlen=1)
    row.append([])
    log.append(len(items))


def _handlers(log: Log) -> None:
    def inner(value: Any) -> None:
        held = [started(log)]
        raise ValueError(held is value)

    try:
        inner(1)
    except ValueError:
        log.append("handler")
    kept = None
    try:
        inner(2)
    except ValueError as error:
        kept = error
    log.append("after")
    del kept
    try:
        raise ValueError(started(log, "argument"))
    except ValueError:
        log.append("handler")
    try:
        for number in numbers(log, "loop"):
            raise KeyError(number)
    except KeyError:
        log.append("handler")


def _swapped(log: Log) -> None:
    a, b = [started(log, "a")], [started(log, "b")]
    a, b = b, a
    del a
    log.append("one")
    del b


def _cleanup_writes(log: Log) -> None:
    def cleaning(items: list[int]) -> Iterator[int]:
        try:
            yield 1
        finally:
            items[0] += 5

    items = [1]
    held = [cleaning(items)]
    next(held[0])
    del held
    log.append(items[0])


def _unpacked(log: Log) -> None:
    try:
        _first, _second = numbers(log)
    except ValueError as error:
        log.append(str(error))
    for items in ((1, 2, 3), {1: 2, 3: 4, 5: 6}, "abc", iter(range(4))):
        try:
            _first, _second = items
        except ValueError as error:
            log.append(str(error))
    log.append("after")


def _loader(log: Log) -> None:
    class Loader:
        def __iter__(self) -> Iterator[int]:
            self.numbers = numbers(log)
            return self

        def __next__(self) -> int:
            return next(self.numbers)

    for number in Loader():
        if number == 2:
            break
    log.append("after")
    loader = Loader()
    for number in loader:
        if number == 1:
            break
    log.append("kept")
    loader.numbers = iter(())


@pytest.mark.parametrize(
    "drops",
    [_temporary, _arguments, _left, _container_changes, _handlers, _swapped, _cleanup_writes, _unpacked, _loader],
    ids=lambda fn: fn.__name__.strip("_"),
)
def test_generator_is_closed_at_the_instruction_that_drops_it(drops: Any) -> None:
    def program(log: Log) -> Any:
        def fn(x: torch.Tensor) -> torch.Tensor:
            drops(log)
            log.append("end")
            return x + len(log)

        return fn

    check_logged(program)


def test_generator_in_what_outlives_the_frame_is_not_closed() -> None:
    def program(log: Log) -> Any:
        def fn(x: torch.Tensor) -> Any:
            KEPT.append([started(log)])
            log.append("held")
            return x + 1, [next(KEPT[-1][0])]

        return fn

    check_logged(program)


def _adding(x: torch.Tensor) -> Iterator[int]:
    try:
        yield 1
    finally:
        x.add_(10)


def _waiting(x: torch.Tensor) -> Iterator[int]:
    made = _adding(x)
    next(made)
    return made


def test_generator_that_a_write_replaces_is_closed_before_what_comes_next() -> None:
    def scenario(compile: Callable[[Any], Any]) -> Any:
        owner, table, items, cell = Plain(), {}, [_waiting(t())], None
        owner.held = None
        seen = torch.zeros(3)

        def attribute(x: torch.Tensor) -> Any:
            owner.held = _waiting(seen)
            return x + seen

        def entry(x: torch.Tensor) -> Any:
            table["held"] = [_waiting(seen)]
            return x + seen

        def variable(x: torch.Tensor) -> Any:
            nonlocal cell
            cell = _waiting(seen)
            return x + seen

        def cleared(x: torch.Tensor) -> Any:
            items.clear()
            return x + seen

        results = []
        for fn in (attribute, entry, variable, cleared):
            compiled = compile(fn)
            for _ in range(3):
                results.append(compiled(torch.ones(3)))
                items[:] = [_waiting(seen)]
        owner.held = _waiting(seen)

        def dropped(x: torch.Tensor) -> Any:
            owner.held = None
            return x + seen

        return [*results, compile(dropped)(torch.ones(3))], seen

    check_scenario(scenario)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_generator_whose_cleanup_raises_where_it_is_dropped() -> None:
    def program(log: Log) -> Any:
        def failing() -> Iterator[int]:
            try:
                yield 1
            finally:
                log.append("closed")
                raise ValueError("cleanup")

        def inner(x: torch.Tensor) -> Any:
            held = [failing()]
            next(held[0])
            del held
            log.append("after")
            return x + 1

        return lambda x: outcome(inner, x)

    check_logged(program)


def test_generator_that_a_cache_keeps() -> None:
    def program(log: Log) -> Any:
        @functools.lru_cache
        def cached(number: int) -> list[Any]:
            return [started(log, number)]

        kept.append(cached)

        def fn(x: torch.Tensor) -> torch.Tensor:
            held = cached(1)
            log.append("had")
            del held
            log.append("after")
            return x + 1

        return fn

    kept: list[Any] = []
    check_logged(program)


def test_what_runs_while_a_generator_waits_looks_for_it_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays on the stack of the ``with``, which is looked at alone."""
    looked_at = []
    inner = WaitingGenerators._of_frame
    monkeypatch.setattr(WaitingGenerators, "_of_frame", lambda self, at: looked_at.append(at) or inner(self, at))

    @contextlib.contextmanager
    def scope() -> Iterator[None]:
        try:
            yield
        finally:
            pass

    def f(x: torch.Tensor, turns: int) -> torch.Tensor:
        total = 0
        with scope():
            for i in range(turns):
                total = (total * 3 + max(i, 2)) % 17
        return x + total

    counts = []
    for turns in (5, 50):
        looked_at.clear()
        assert torch.equal(compile_fn(f)(t(2), turns), f(t(2), turns))
        counts.append(len(looked_at))
    assert counts[0] == counts[1]


def test_generator_that_another_one_drops_is_closed_before_what_is_read_next() -> None:
    def f(x: torch.Tensor) -> Any:
        log: Log = []
        state = Plain()
        state.held = "before"

        def inner() -> Iterator[int]:
            try:
                yield 1
            finally:
                state.held = "closed"

        def outer() -> Iterator[Any]:
            waiting: Any = inner()
            next(waiting)
            yield 1
            waiting = None
            read = state.held
            log.append(read)
            yield read

        made = outer()
        next(made)
        return x + 1, next(made), log

    check(f, t(3))
