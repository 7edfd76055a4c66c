"""What is seen of the program's code while a frame is captured."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe

from jitney.capture.interpreter import arity
from jitney.guards.reentry import MONITORED, ReentryWatch, is_programs

CLOSED: list[int] = []
GARBAGE: list[Any] = []


def waiting() -> Iterator[None]:
    """A generator that somebody closes."""
    try:
        yield
    finally:
        CLOSED.append(1)


def leave_a_cycle() -> None:
    """A waiting generator that only the collector frees, which closes it."""
    generator = waiting()
    next(generator)
    cycle: list[Any] = [generator]
    cycle.append(cycle)


class Quiet:
    """A context manager of the program's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def test_the_collector_closes_no_generator_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    enter = ReentryWatch.__enter__
    entered: list[int] = []

    def enter_with_garbage(watch: ReentryWatch) -> Any:
        collects = gc.isenabled()
        gc.disable()
        leave_a_cycle()
        entered.append(1)
        if collects:
            gc.enable()
        made = enter(watch)
        GARBAGE.extend(map(list, itertools.repeat((), 5000)))  # more than the collector lets pass
        return made

    def fn(x: torch.Tensor) -> torch.Tensor:
        with contextlib.ExitStack() as stack:
            stack.enter_context(Quiet())
            return x * 2

    monkeypatch.setattr(ReentryWatch, "__enter__", enter_with_garbage)
    with observe() as seen:
        assert compile_fn(fn)(torch.ones(2)).tolist() == [2, 2]
    assert (entered or MONITORED) and (seen.breaks, seen.skips, len(seen.graphs)) == ([], [], 1)
    gc.collect()
    assert len(CLOSED) == len(entered) and gc.isenabled()


def test_the_default_of_an_argument_in_c_is_no_code_of_the_programs() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> torch.Tensor:
        return x * items.index(7)  # whose signature says "stop=sys.maxsize", which ``inspect`` evaluates

    arity._signature.cache_clear()
    arity._of_method.cache_clear()
    with observe() as seen:
        assert compile_fn(fn)(torch.ones(2), [5, 7]).tolist() == [1, 1]
    assert (seen.breaks, seen.skips, len(seen.graphs)) == ([], [], 1)


def test_the_code_that_namedtuple_evaluates_is_not_the_programs() -> None:
    """Its module is entered as well as the function that it makes; only Python 3.12 and later report that."""
    space = {"_tuple_new": tuple.__new__, "__builtins__": {}, "__name__": "namedtuple_Point"}
    module = compile("lambda _cls, x, y: _tuple_new(_cls, (x, y))", "<string>", "eval")
    function = eval(module, space)
    assert not is_programs(module, space) and not is_programs(function.__code__, space)
    assert is_programs(module, {"__name__": "program"})
