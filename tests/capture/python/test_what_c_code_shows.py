"""What Python's own C code shows of a program that runs: names in scope, names of generators, trace functions."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

import pytest
import torch
from helpers import check, graph_break, outcome, t


def test_lists_that_change_while_they_are_compared() -> None:
    class Clears:
        def __init__(self, *lists: list[Any]) -> None:
            self.lists = lists

        def __eq__(self, other: object) -> Any:
            for found in self.lists:
                found.clear()
            return NotImplemented

    def fn(x: torch.Tensor) -> Any:
        second: list[Any] = [1]
        first = [Clears(second)]
        answers = [first == second]
        third: list[Any] = []
        third.append(Clears(third))
        fourth: list[Any] = [Clears(third)]
        answers += [third == fourth, first != [2], third == [], first == [3], [Clears(), 1] != [2, 1]]
        return x + 1, answers

    check(fn, t())


def test_names_in_scope_without_those_of_the_compiler() -> None:
    def fn(x: torch.Tensor) -> Any:
        first = 1
        print("between")
        second = first
        return x + second, dir(), sorted(vars()), sorted(locals())

    check(fn, t(), graphs=1)


def test_modules_without_a_usual_namespace() -> None:
    class Other(types.ModuleType):
        __dict__ = property(lambda self: "no dictionary")  # type: ignore[assignment]

    other = Other("other")

    def fn(x: torch.Tensor) -> Any:
        made = types.ModuleType.__new__(types.ModuleType)
        return x + 1, hasattr(made, "__name__"), hasattr(made, "other"), type(made), other.__dict__

    check(fn, t(), skips=None)


def test_class_that_makes_no_instances() -> None:
    key = type(functools.cmp_to_key(lambda a, b: 0))
    check(lambda x: (x + 1, outcome(key)), t(), skips=None)


@pytest.mark.parametrize("name", ["settrace", "setprofile"])
def test_trace_function_sees_what_eager_shows_it(name: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        events: list[Any] = []

        def called(n: int) -> int:
            m = n + 1
            return m

        def watch(frame: Any, event: str, arg: Any) -> Any:
            if frame.f_code is called.__code__:
                events.append((event, frame.f_lineno - frame.f_code.co_firstlineno))
            return watch

        before = getattr(sys, f"get{name[3:]}")()
        getattr(sys, name)(watch)
        called(1)
        getattr(sys, name)(before)
        return x + 1, events

    check(fn, t(), skips=None)


def test_partial_of_a_partial() -> None:
    def called(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    named = functools.partial(called, 1)
    named.attribute = 3  # type: ignore[attr-defined]

    def fn(x: torch.Tensor) -> Any:
        plain = functools.partial(called, 1, a=2)
        graph_break()
        made = functools.partial(plain, 2, b=3)
        own = functools.partial(called, 4)
        own.attribute = 5  # type: ignore[attr-defined]
        others = functools.partial(named, 6), functools.partial(own, 7)
        kept = [p.func is q for p, q in zip(others, (named, own), strict=True)]
        return x + 1, made.func is called, made.args, made.keywords, made(), kept, [p() for p in others]

    check(fn, t())
