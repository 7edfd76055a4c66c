"""Numbers that have become symbolic: whatever is asked of them, they answer as plain numbers do."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, check_scenario, outcome, t

Compile = Callable[[Any], Any]
INTS, FLOATS = (3, 4, 5, 300), (3.5, 4.5, 5.25)


@pytest.mark.parametrize("name", [n for n in dir(3) if n != "__reduce_ex__"])
def test_attribute_of_an_int(name: str) -> None:
    check_scenario(lambda compile: asked(compile, name, INTS))


@pytest.mark.parametrize("name", [n for n in dir(3.5) if n != "__reduce_ex__"])
def test_attribute_of_a_float(name: str) -> None:
    check_scenario(lambda compile: asked(compile, name, FLOATS))


def asked(compile: Compile, name: str, values: tuple[Any, ...]) -> Any:
    def fn(x: torch.Tensor, k: Any) -> Any:
        found = getattr(k, name)
        return x * k, callable(found), None if callable(found) else found, hasattr(k, "absent"), k.__class__.__name__

    called = compile(fn)
    return [called(t(), k) for k in values]


METHODS = "__hash__ __int__ __neg__ __str__ __repr__ __trunc__ __bool__ __float__ __ceil__ __round__ conjugate".split()
OF_INTS = ["bit_length", "bit_count", "__index__", "as_integer_ratio", "to_bytes"]


@pytest.mark.parametrize("name", [*METHODS, *OF_INTS])
def test_method_of_an_int(name: str) -> None:
    def scenario(compile: Compile) -> Any:
        called = compile(lambda x, k: (x * k, getattr(k, name)(*((2, "big") if name == "to_bytes" else ()))))
        return [called(t(), k) for k in INTS]

    check_scenario(scenario)


@pytest.mark.parametrize("name", [*METHODS, "hex", "is_integer", "as_integer_ratio"])
def test_method_of_a_float(name: str) -> None:
    def scenario(compile: Compile) -> Any:
        called = compile(lambda x, k: (x * k, getattr(k, name)()))
        return [called(t(), k) for k in FLOATS]

    check_scenario(scenario)


def test_method_that_fails_on_a_literal() -> None:
    check_scenario(lambda compile: outcome(compile(lambda x, k: (x * k, k.to_bytes(1, "big"))), t(), 300))


def test_dispatch_on_the_class_of_a_number() -> None:
    def scenario(compile: Compile) -> Any:
        table = {int: "int", float: "float", bool: "bool"}
        called = compile(lambda x, k: (x * k, table[k.__class__], k.__class__(7), type(k) is k.__class__, k.real))
        return [called(t(), k) for k in (3, 4, 5, 2.5, 3.5, 4.5, True, 6)]

    check_scenario(scenario)


class Level(enum.IntEnum):
    ONE = 1
    TWO = 2
    THREE = 3


class Ratio(float):
    pass


def beside(x: torch.Tensor, n: Any, kinds: Any) -> Any:
    answers: list[Any] = []
    for k in kinds:
        answers += [k == n, n == k, k != n, k < n, n <= k, k + n, n * k, max(k, n), min(n, k), sorted([k, n])]
        answers += [[k] == [n], ((k,), 1) == ((n,), 1), n in [k], k in (n,), {"a": k} == {"a": n}, [k, n].index(n)]
    return x * n, answers


@pytest.mark.parametrize(("kinds", "base"), [(tuple(Level), int), ((Ratio(1.0), Ratio(2.0)), float)])
def test_number_that_changes_beside_one_of_a_subclass(kinds: Any, base: Any) -> None:
    def scenario(compile: Compile) -> Any:
        called = compile(beside)
        return [called(t(), base(n), kinds) for n in (1, 2, 3, 2)]

    check_scenario(scenario)


def test_values_of_members_are_no_number_that_changes() -> None:
    check(lambda x: (x + 1, [(k == k.value, k.value) for k in Level]), t(), graphs=1)
