"""match statements: every kind of pattern."""

from __future__ import annotations

import collections
import enum
from collections import UserDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from helpers import check, t


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: Any
    y: Any


class Pair:
    __match_args__ = ("left", "right")

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


def kinds(x: torch.Tensor, v: Any) -> tuple[Any, ...]:
    match v:
        case torch.Tensor(shape=(2, n)):
            return "matrix", n, v + 1
        case torch.Tensor():
            return "tensor", v * 2
        case 0 | 1:
            return "small", x + v
        case int(n) if n > 100:
            return "big", x * n
        case -3.5:
            return "literal", x
        case bool() | None:
            return "bool or none", x
        case "word":
            return "word", x
        case str() as s:
            return "str", len(s), x
        case Color.RED:
            return "red", x
        case Color():
            return "color", v, x
        case []:
            return "empty", x
        case [a]:
            return "one", a, x
        case [a, (b, c), *rest] if rest:
            return "nested", a, b, c, rest, x
        case (a, *_, z):
            return "ends", a, z, x
        case {"kind": "add", "n": n, **rest}:
            return "add", n, rest, x + n
        case {"kind": kind}:
            return "kind", kind, x
        case {}:
            return "dict", x
        case Point(x=0, y=b):
            return "on y", b, x
        case Point(a, b):
            return "point", a, b, x
        case Pair(Pair(a, b), right=c):
            return "pairs", a, b, c, x
        case _:
            return "other", x


VALUES: list[Any] = [
    0,
    1,
    7,
    500,
    -3.5,
    True,
    False,
    None,
    "word",
    "other",
    Color.RED,
    Color.BLUE,
    [],
    [1],
    [1, (2, 3), 4, 5],
    (1, 2, 3, 4),
    [1, (2, 3)],
    {"kind": "add", "n": 3, "more": 4},
    {"kind": "sub"},
    {"z": 1},
    Point(0, 5),
    Point(1, 2),
    Pair(Pair(1, 2), 3),
    Pair(1, 2),
    t(2, 3),
    t(4),
    {1, 2},
    b"bytes",
    3.25,
    range(3),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: str(type(v).__name__))
def test_patterns(value: Any) -> None:
    check(kinds, t(), value)


def test_match_in_a_loop_over_instructions() -> None:
    def fn(x: torch.Tensor, program: list[Any]) -> tuple[Any, ...]:
        stack = [x]
        for op in program:
            match op:
                case ["push", float() | int() as n]:
                    stack.append(torch.full_like(x, n))
                case ["bin", ("add" | "mul") as name]:
                    b, a = stack.pop(), stack.pop()
                    stack.append(a + b if name == "add" else a * b)
                case ["dup"]:
                    stack.append(stack[-1])
        return tuple(stack)

    check(fn, t(), [["push", 2], ["bin", "mul"], ["dup"], ["bin", "add"], ["unknown"]], graphs=1)


def test_match_binds_names_before_guard_fails() -> None:
    def fn(x: torch.Tensor, v: Any) -> tuple[Any, ...]:
        match v:
            case [a, b] if a > b:
                r = "greater"
            case [a, _]:
                r = "less"
        return r, a, x + a

    check(fn, t(), [1, 2], graphs=1)
    check(fn, t(), [2, 1], graphs=1)


def test_match_with_a_break_inside() -> None:
    def fn(x: torch.Tensor, v: Any) -> tuple[Any, ...]:
        y = x + 1
        match v:
            case {"n": n}:
                print("n", n)
                y = y * n
            case _:
                print("none")
        return y, x - 1

    check(fn, t(), {"n": 3}, graphs=2, breaks=1)
    check(fn, t(), 3, graphs=2, breaks=1)


def test_match_on_data_dependent_value() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        match int(x.sum().item() > 0):
            case 1:
                return x + 1
            case _:
                return x - 1

    check(fn, t() + 1)
    check(fn, t() - 9)


class MappingFirst(UserDict[str, int], Sequence[Any]):  # type: ignore[misc]
    """Both: what it was first decides."""


class Getter(dict[str, int]):
    """Patterns ask ``get``."""

    def get(self, key: str, default: Any = None) -> Any:
        return 5 if key == "a" else default


def test_a_class_that_is_mapping_and_sequence_is_what_it_was_first() -> None:
    def fn(x: torch.Tensor, value: Any) -> Any:
        match value:
            case [*_]:
                return x, "sequence"
            case {}:
                return x, "mapping"

    check(fn, t(), MappingFirst(), skips=None)
    check(fn, t(), collections.deque([1]), breaks=0)


def test_keys_of_a_mapping_pattern() -> None:
    class Keys:
        A = "a"

    def fn(x: torch.Tensor, value: Any) -> Any:
        match value:
            case {"a": first, "c": _}:
                return x, first
            case {"a": first}:
                return x + 1, first

    def twice(x: torch.Tensor, value: Any) -> Any:
        match value:
            case {Keys.A: first, "a": second}:
                return x, first, second

    check(fn, t(), Getter(), breaks=0)
    check(fn, t(), {"a": 1, "c": 2}, breaks=0)
    check(twice, t(), {"a": 1, "b": 2}, raises=ValueError)
