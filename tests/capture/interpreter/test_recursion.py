"""Recursion without end, or near a limit that the program has lowered: what eager does, and the process lives."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import check, compile_fn, observe, t


class Attribute:
    def __getattr__(self, name: str) -> Any:
        return getattr(self, name + "x")


class Sum:
    def __add__(self, other: Any) -> Any:
        return self + (other + 1)


class Text:
    def __repr__(self) -> str:
        return repr([self])


class Equal:
    def __eq__(self, other: object) -> bool:
        return [self] == [other]


def plain(n: int) -> int:
    return plain(n + 1)


def printing(n: int) -> int:
    print(end="")
    return printing(n + 1)


def key(n: int) -> Any:
    return sorted([1, 2], key=lambda v: key(n + 1))


def generator(n: int) -> Iterator[int]:
    yield from generator(n + 1)


ENDLESS: dict[str, Callable[[], Any]] = {
    "a function": lambda: plain(0),
    "a function with a break": lambda: printing(0),
    "__getattr__": lambda: Attribute().foo,
    "__add__": lambda: Sum() + 1,
    "__repr__": lambda: repr(Text()),
    "__eq__": lambda: Equal() == Equal(),
    "a key function": lambda: key(0),
    "a generator": lambda: list(generator(0)),
}


@contextlib.contextmanager
def limited(by: int) -> Iterator[None]:
    """So many calls are left on the stack."""
    before, depth, frame = sys.getrecursionlimit(), 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + by)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_recursion_is_the_programs_to_handle(name: str) -> None:
    endless = ENDLESS[name]

    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            endless()
        except RecursionError:
            return x + 1
        return x - 1

    check(fn, t(), skips=None)


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("left", [40, 150, 400])
def test_a_limit_that_the_program_lowers(name: str, left: int) -> None:
    endless = ENDLESS[name]

    def fn(x: torch.Tensor) -> torch.Tensor:
        before = sys.getrecursionlimit()
        with limited(left):
            try:
                endless()
            except RecursionError:
                x = x + 1
        return x * (sys.getrecursionlimit() == before)

    check(fn, t(), skips=None)


def test_nothing_is_compiled_near_the_limit() -> None:
    fn = compile_fn(lambda x: x.sin() + 1)
    with observe() as seen:
        with limited(100):
            assert torch.equal(fn(t()), t().sin() + 1)
        assert not seen.graphs and "recursion limit" in seen.skips[0]
        assert torch.equal(fn(t()), t().sin() + 1)
    assert len(seen.graphs) == 1


def held_list() -> Any:
    items: list[Any] = []
    items.append(items)
    return repr(items), str(items), f"{items}"


def held_dict() -> Any:
    table: dict[str, Any] = {}
    table["a"] = [table]
    return repr(table), str((table,))


class Word(str):
    def __str__(self) -> str:
        return "its own"


OUTSIDE: list[Any] = []
OUTSIDE.append((OUTSIDE,))
TEXTS: dict[str, Callable[[], Any]] = {
    "a list that holds itself": held_list,
    "a dict that holds itself": held_dict,
    "one from outside": lambda: repr(OUTSIDE),
    "a str subclass": lambda: (str(Word("a")), f"{Word(str())!s}", repr(Word("a"))),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_what_holds_itself(name: str) -> None:
    text = TEXTS[name]
    check(lambda x: (text(), x + 1), t(), skips=None)
