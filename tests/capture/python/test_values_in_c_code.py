"""Objects of C code that hold others (unions, patterns, callables, sets): what C code reads there is guarded."""

from __future__ import annotations

import abc
import functools
import itertools
import operator
import re
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check_scenario, t

Compile = Callable[[Any], Any]
chained = itertools.chain.from_iterable


class Plain: ...


def repeated(value: int) -> int:
    return value * 2


# A use, and what it is given call by call: objects of one class that differ inside.
USES: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "isinstance of a union": (lambda u: isinstance(1, u), [int | str, float | str, int | str]),
    "isinstance of typing's union": (lambda u: isinstance(1, u), [typing.Union[int, str], typing.Union[float, str]]),
    "isinstance of an optional class": (lambda u: isinstance(1, u), [typing.Optional[int], typing.Optional[str]]),
    "isinstance of a union in a tuple": (lambda u: isinstance(1, (bytes, u)), [int | str, float | str]),
    "issubclass of a union": (lambda u: issubclass(int, u), [int | str, float | str]),
    "a union as a key": (lambda u: {int | str: 2, float | str: 3}[u], [int | str, float | str]),
    "an alias as a key": (lambda u: {list[int]: 2, list[str]: 3}[u], [list[int], list[str]]),
    "a pattern's method": (lambda p: bool(p.match("a")), [re.compile("a"), re.compile("b")]),
    "a pattern's method by name": (lambda p: [m("a") is None for m in (p.match,)], [re.compile("a"), re.compile("b")]),
    "map of an itemgetter": (
        lambda g: list(map(g, [(1, 2), (3, 5)])),
        [operator.itemgetter(0), operator.itemgetter(1)],
    ),
    "map of a partial": (
        lambda p: list(map(p, [1, 2])),
        [functools.partial(operator.mul, 2), functools.partial(operator.mul, 3)],
    ),
    "map of a cached function": (
        lambda f: list(map(f, [1, 2])),
        [functools.lru_cache(repeated), functools.lru_cache(lambda value: value * 5)],
    ),
    "lists in a chained list": (lambda v: sum(chained(v)), [[[1, 2], [3]], [[1, 5], [3]], [[1, 5], [3, 4]]]),
    "lists chained one by one": (lambda v: sum(chained(p for p in v)), [[[1, 2], [3]], [[1, 5], [3]]]),
    "a chain that is endless": (
        lambda v: list(itertools.islice(chained(itertools.repeat(v)), 5)),
        [[1, 2], [1, 3]],
    ),
}


@pytest.mark.parametrize("name", USES)
def test_what_c_code_reads_of_an_object_is_guarded(name: str) -> None:
    use, values = USES[name]

    def scenario(compile: Compile) -> Any:
        called = compile(lambda x, value: (x * 2, use(value)))
        return [called(t(), value) for value in values]

    check_scenario(scenario)


def test_abstract_classes_in_unions_may_change_their_minds() -> None:
    def scenario(compile: Compile) -> Any:
        class Own(abc.ABC):
            """A new one in each run."""

        several = (int, (str, Own))
        union = typing.Union[int, Own]
        called = compile(lambda x, v: (x * 2, isinstance(v, several), isinstance(v, union), isinstance(v, int | Own)))
        first = called(t(), Plain())
        Own.register(Plain)
        return first, called(t(), Plain())

    check_scenario(scenario)


NAMES = {f"name{i}": i for i in range(6)}
FROZEN = frozenset(NAMES)


@pytest.mark.parametrize("held", [NAMES, set(NAMES), FROZEN], ids=["dict", "set", "frozenset"])
def test_a_set_made_of_another_collection_has_eagers_order(held: Any) -> None:
    def scenario(compile: Compile) -> Any:
        called = compile(lambda x: (x * 2, list(set(held)), list(frozenset(held)), str(set(held)), set(held).pop()))
        return called(torch.ones(2))

    check_scenario(scenario)
