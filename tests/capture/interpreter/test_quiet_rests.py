"""The rest of a frame after a break that only returns: it runs with the instruction that broke, and is not compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import check, check_scenario, compile_fn, graph_break, t

from jitney import events

Compile = Callable[[Any], Any]


def value(x: torch.Tensor) -> Any:
    return x.sum().item()


def called(x: torch.Tensor) -> Any:
    return value(x)


def stored(x: torch.Tensor) -> Any:
    y = x + 1
    n = x.sum().item()
    return y, [n, 3], n


def nothing(x: torch.Tensor) -> None:
    x.add_(1)
    x.sum().item()


def looped(x: torch.Tensor) -> Any:
    n = 0
    for _ in map(lambda v: v, [x.sum().item()]):
        n += 1
    return n


@pytest.mark.parametrize("fn", [value, called, stored, nothing])
@pytest.mark.parametrize("integers", [True, False])
def test_numbers_that_are_only_returned_are_compiled_for_once(fn: Any, integers: bool) -> None:
    captured: list[str] = []
    compiled = compile_fn(fn)
    with events.listen(lambda e: captured.append(e.name) if isinstance(e, events.FrameCaptured) else None):
        for n in (0, 1, 2, 3, 7, -1):
            x, y = (torch.tensor([n, 0]) if integers else torch.tensor([float(n), 0.0]) for _ in range(2))
            assert str(compiled(x)) == str(fn(y))
            assert torch.equal(x, y)
    assert captured == [fn.__name__]


@pytest.mark.parametrize("fn", [value, called, stored, nothing, looped])
def test_as_in_eager(fn: Any) -> None:
    check(fn, t(3), calls=3)


def test_a_rest_in_a_protected_region_is_left_to_the_compiler() -> None:
    def fn(x: torch.Tensor, log: list[Any]) -> Any:
        try:
            with torch.no_grad():
                y = x.sum().item()
                return y
        finally:
            log.append("done")

    check(fn, t(3), [], calls=3)


def test_a_variable_without_a_value_is_missed_where_eager_misses_it() -> None:
    def fn(x: torch.Tensor, early: bool) -> Any:
        if early:
            del x
        graph_break()
        return x

    check(fn, t(3), True, raises=UnboundLocalError)

    def caught(x: torch.Tensor, early: bool) -> Any:
        if early:
            n = x + 1
        try:
            graph_break()
            return n
        except UnboundLocalError as error:
            return str(error)

    check(caught, t(3), False)


def test_objects_are_dropped_when_the_frame_ends() -> None:
    class Resource:
        def __init__(self, log: list[Any]) -> None:
            self.log = log

        def __del__(self) -> None:
            self.log.append("dropped")

    def scenario(compile: Compile) -> Any:
        log: list[Any] = []

        def inner(x: torch.Tensor) -> Any:
            resource = Resource(log)  # noqa: F841
            return x.sum().item()

        def fn(x: torch.Tensor) -> Any:
            y = inner(x)
            log.append("after")
            return y

        run = compile(fn)
        return [run(t()), run(t(2))], log

    check_scenario(scenario)


def test_generators_and_constructors_end_as_in_eager() -> None:
    class Made:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x * 2
            graph_break()

    def numbers(x: torch.Tensor) -> Iterator[Any]:
        yield x + 1
        graph_break()
        return x.sum().item()

    def fn(x: torch.Tensor) -> Any:
        def through() -> Iterator[Any]:
            last = yield from numbers(x)
            yield last

        return Made(x).x, list(through())

    check(fn, t(3), calls=3)
