"""When objects are dropped: ``__del__``, weak reference callbacks, abandoned generators, objects that watch reads."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import check_logged, check_scenario, disable, outcome, t

Compile = Callable[[Any], Any]


class Resource:
    def __init__(self, log: list[Any], name: Any = "") -> None:
        self.log = log
        self.name = name

    def __enter__(self) -> Resource:
        return self

    def __exit__(self, *error: object) -> None:
        self.log.append("left")

    def __del__(self) -> None:
        self.log.append(f"dropped {self.name}")


class Plain:
    pass


def test_finaliser_runs_where_the_object_is_dropped() -> None:
    def program(log: list[Any]) -> Any:
        def fn(x: torch.Tensor) -> torch.Tensor:
            resource = Resource(log)
            y = x + 1
            log.append("before")
            del resource
            log.append("after")
            for i in range(2):
                with Resource(log, i):
                    y = y + 1
            return y

        return fn

    check_logged(program)


def test_callback_of_a_weak_reference_runs_where_the_object_is_dropped() -> None:
    def program(log: list[Any]) -> Any:
        def fn(x: torch.Tensor) -> Any:
            a, b, c = Plain(), Plain(), Plain()
            ref = weakref.ref(a, lambda _: log.append("a"))
            plain = weakref.ref(b)
            weakref.finalize(c, log.append, "c")
            y = x + 1
            del a, c
            log.append("after")
            del b
            return y, ref() is None, plain() is None

        return fn

    check_logged(program)


def test_weak_dictionary_forgets_what_the_frame_made() -> None:
    def scenario(compile: Compile) -> Any:
        table: Any = weakref.WeakValueDictionary()

        def fn(x: torch.Tensor) -> Any:
            made = Plain()
            table["k"] = made
            before = len(table)
            del made
            return x * before + len(table)

        called = compile(fn)
        return [called(t()), called(t())], len(table)

    check_scenario(scenario)


def test_generator_inside_an_abandoned_generator_expression_is_closed() -> None:
    def program(log: list[Any]) -> Any:
        def numbers() -> Iterator[int]:
            try:
                yield from range(5)
            finally:
                log.append("closed")

        def fn(x: torch.Tensor) -> Any:
            first = next(numbers())
            log.append("next")
            pairs = list(zip(numbers(), [1]))
            log.append("zip")
            found = any(v == 1 for v in numbers())
            log.append("any")
            return x + first, pairs, found

        return fn

    check_logged(program)


def test_object_that_logs_its_reads() -> None:
    class Watched:
        def __init__(self, log: list[str]) -> None:
            object.__setattr__(self, "log", log)
            object.__setattr__(self, "k", 3)

        def __getattribute__(self, name: str) -> Any:
            object.__getattribute__(self, "log").append(name)
            return object.__getattribute__(self, name)

    def scenario(compile: Compile) -> Any:
        log: list[str] = []
        by_argument = compile(lambda obj, x: x * obj.k)
        made_inside = compile(lambda x: x * Watched(log).k)
        obj = Watched(log)
        return [by_argument(obj, t()), by_argument(obj, t()), made_inside(t()), made_inside(t())], log

    check_scenario(scenario)


@pytest.mark.parametrize("times", [1, 2])
def test_object_from_a_broken_call_is_dropped_where_the_frame_drops_it(times: int) -> None:
    def program(log: list[Any]) -> Any:
        @disable
        def make() -> Any:
            return Resource(log)

        def inner(x: torch.Tensor) -> torch.Tensor:
            resource = make()
            y = x + 1
            print("between")
            log.append("before")
            del resource
            log.append("after")
            return y

        return lambda x: [inner(x) for _ in range(times)]

    check_logged(program)


def test_weak_reference_after_a_break_dies_with_its_object() -> None:
    def program(log: list[Any]) -> Any:
        def fn(x: torch.Tensor) -> Any:
            for i in range(3):
                made = Plain()
                x = x + i
                print("between")
                ref = weakref.ref(made, lambda _: log.append("dead"))
                log.append(ref() is made)
                del made
                log.append(ref() is None)
            return x

        return fn

    check_logged(program)


@pytest.mark.parametrize("how", ["returns", "in an object", "in a list"])
def test_generator_that_nobody_reads_after_a_break_is_closed(how: str) -> None:
    def scenario(compile: Compile) -> Any:
        log: list[Any] = []

        def numbers() -> Iterator[int]:
            try:
                yield from range(5)
            finally:
                log.append("closed")

        def fn(x: torch.Tensor) -> torch.Tensor:
            made: Any = numbers()
            next(made)
            if how == "in an object":
                kept: Any = Plain()
                kept.generator = made
                made = kept
            elif how == "in a list":
                made = [made]
            print("between")
            log.append("before the end")
            return x + 1

        called = compile(fn)
        return [outcome(called, t()), log.append("after"), outcome(called, t())], log

    check_scenario(scenario)


@pytest.mark.parametrize("how", ["break", "raise", "forgotten", "zip", "inner", "called"])
def test_generator_dropped_after_a_break_is_closed_there(how: str) -> None:
    def program(log: list[Any]) -> Any:
        def numbers() -> Iterator[int]:
            try:
                yield from range(5)
            finally:
                log.append("closed")

        def outer() -> Iterator[int]:
            for number in numbers():
                yield number

        def loop(x: torch.Tensor) -> torch.Tensor:
            pairs: Any = zip(numbers(), "abc", strict=False)
            for number in pairs if how == "zip" else outer() if how == "inner" else numbers():
                print("between")
                x = x + 1
                if how == "raise":
                    raise ValueError(len(log))
                if number != 0:
                    break
            log.append("after")
            return x

        def fn(x: torch.Tensor) -> Any:
            if how == "forgotten":
                made: Any = numbers()
                next(made)
                print("between")
                made = None
                log.append("after")
                return x + 1
            try:
                return loop(x) if how == "called" else loop(x) * 2
            except ValueError as error:
                return x, error.args, list(log)

        return fn

    check_logged(program)


def test_generator_whose_later_yield_cleans_up_is_closed_where_it_is_dropped() -> None:
    def program(log: list[Any]) -> Any:
        def numbers() -> Iterator[int]:
            yield 0
            with contextlib.ExitStack() as stack:
                stack.callback(log.append, "closed")
                yield 1
                yield 2

        def fn(x: torch.Tensor) -> torch.Tensor:
            for number in numbers():
                print("between")
                x = x + 1
                if number == 1:
                    break
            log.append("after")
            return x

        return fn

    check_logged(program)
