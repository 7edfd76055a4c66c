"""Which special method an operator asks, in which order, and what it makes of NotImplemented and None."""

from __future__ import annotations

import abc
import collections
import copy
import itertools
import operator
import types
from typing import Any

import pytest
import torch
from helpers import check, graph_break, outcome, t

OPERATORS = ["eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "iadd"]
NI = NotImplemented
# Classes by name: bases, and what their special methods give.
CLASSES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "All": ((), dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "rsub"), NI) | {"sub": 1}),
    "Below": (("All",), dict.fromkeys(("eq", "gt", "radd", "iadd"), NI) | {"rsub": 2}),
    "Plain": (("All",), {}),
    "Other": ((), dict.fromkeys(("eq", "lt", "radd", "ne"), NI)),
    "Deep": (("Below",), {"le": NI}),
    "OnlyEq": ((), {"eq": NI}),
    "OnlyNe": ((), {"ne": NI}),
    "Equal": ((), {"eq": True}),
    "Nothing": ((), {}),
    "NoEq": ((), {"eq": None}),
    "NoNe": ((), {"eq": NI, "ne": None}),
    "NoAdd": ((), {"add": None, "radd": None}),
    "NoInPlace": ((), {"add": 5, "iadd": None}),
}


def made(log: list[Any]) -> list[Any]:
    """An instance of each class; its methods log that they are called."""
    classes: dict[str, type] = {}

    def method(name: str, special: str, answer: Any) -> Any:
        def logs(self: Any, other: Any) -> Any:
            log.append(f"{name}.{special}")
            return answer

        return logs

    for name, (bases, methods) in CLASSES.items():
        space = {f"__{k}__": None if v is None else method(name, k, v) for k, v in methods.items()}
        classes[name] = type(name, tuple(classes[base] for base in bases), space)
    return [cls() for cls in classes.values()]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_ask_the_methods_that_eager_asks(name: str) -> None:
    log: list[Any] = []
    values = made(log)
    function = getattr(operator, name)

    def fn(x: torch.Tensor) -> Any:
        log.clear()
        answers: list[Any] = []
        for a, b in itertools.product([*values, 1, "a", None], repeat=2):
            try:
                answers.append(function(a, b) if a is not b else "same")
            except TypeError as error:
                answers.append(str(error))
            answers.append(len(log))
        return x + 1, list(map(repr, answers)), list(log)

    check(fn, t(), skips=None)


def test_containers_compare_as_eager() -> None:
    log: list[Any] = []
    values = made(log)

    def fn(x: torch.Tensor) -> Any:
        log.clear()
        answers: list[Any] = []
        for v in values:
            asked = (lambda: [v] == [1], lambda: (v,) != (v,), lambda: 1 in [v], lambda: v in [1, v], lambda: [v] < [1])
            answers += [repr(outcome(ask)) for ask in asked]
        return x + 1, answers, list(log)

    check(fn, t(), skips=None)


class Refuses:
    __contains__ = __iter__ = __neg__ = __bool__ = __len__ = __call__ = __hash__ = __int__ = __index__ = None  # type: ignore[assignment]
    __getitem__ = __setitem__ = __delitem__ = __next__ = __abs__ = __float__ = __reversed__ = None


class OnlyItems:
    __iter__ = None

    def __getitem__(self, index: int) -> int:
        return index


class NoMembers:
    __contains__ = None

    def __iter__(self) -> Any:
        return iter([1])


USES: dict[str, Any] = {
    "in": lambda v: 1 in v,
    "iter": iter,
    "neg": operator.neg,
    "bool": bool,
    "if": lambda v: 1 if v else 2,
    "len": len,
    "call": lambda v: v(),
    "hash": hash,
    "set": lambda v: {v},
    "int": int,
    "index": lambda v: [1][v],
    "getitem": lambda v: v[0],
    "next": next,
    "abs": abs,
    "float": float,
    "reversed": lambda v: list(reversed(v)),
}


@pytest.mark.parametrize("kind", [Refuses, OnlyItems, NoMembers])
@pytest.mark.parametrize("name", [n for n in USES])
def test_none_in_the_place_of_a_method(kind: Any, name: str) -> None:
    value, use = kind(), USES[name]

    def fn(x: torch.Tensor) -> Any:
        try:
            answer = use(value)
        except TypeError as error:
            return x + 1, str(error)
        return x + 1, type(answer)

    check(fn, t(), skips=None)


def test_iteration_by_methods() -> None:
    log: list[Any] = []

    class Items:
        def __len__(self) -> int:
            log.append("len")
            return 3

        def __getitem__(self, index: int) -> int:
            log.append(index)
            return index * 2

    class NoIterator:
        def __iter__(self) -> Any:
            return self

    def fn(x: torch.Tensor) -> Any:
        log.clear()
        backwards = reversed(Items())
        first = next(backwards)
        log.append("between")
        return x + first, list(backwards), outcome(iter, NoIterator()), list(log)

    check(fn, t())


def test_metaclasses_are_called_once() -> None:
    def fn(x: torch.Tensor) -> Any:
        calls: list[str] = []

        class Meta(type):
            def __new__(cls, name: str, bases: Any, space: Any) -> Any:
                calls.append(name)
                return super().__new__(cls, name, bases, space)

        made = types.new_class("Made", (), {"metaclass": Meta})
        return x + 1, calls, type(made) is Meta, made.__name__

    check(fn, t(), skips=None)


@pytest.mark.parametrize("subclasses", [None, lambda: 42, lambda: [42]])
def test_abstract_classes_that_raise(subclasses: Any) -> None:
    class Abstract(abc.ABC):  # noqa: B024
        __subclasses__ = subclasses

    def fn(x: torch.Tensor) -> Any:
        try:
            return x + 1, issubclass(int, Abstract)
        except TypeError as error:
            return x + 2, str(error)

    check(fn, t(), skips=None)


def test_searches_stop_where_they_find_it() -> None:
    log: list[Any] = []

    class Logs:
        def __init__(self, name: str, equal: bool) -> None:
            self.name, self.equal = name, equal

        def __eq__(self, other: object) -> bool:
            log.append(self.name)
            return self.equal

        __hash__ = None  # type: ignore[assignment]

    def fn(x: torch.Tensor) -> Any:
        log.clear()
        answers: list[Any] = []
        for kind in (list, tuple, collections.deque):
            made = kind([Logs("a", False), Logs("b", True), Logs("c", True)])
            answers += [1 in made, made.index(1), made.count(1), 2 not in made]
            if kind is not tuple:
                made.remove(1)
                answers.append([v.name for v in made])
        return x + 1, answers, list(log)

    check(fn, t())


def test_deques_that_change_while_they_are_searched() -> None:
    class Clears:
        def __init__(self, found: Any, equal: Any) -> None:
            self.found, self.equal = found, equal

        def __eq__(self, other: object) -> Any:
            self.found.clear()
            return self.equal

    def fn(x: torch.Tensor) -> Any:
        answers: list[Any] = []
        for name in ("__contains__", "index", "count", "remove"):
            for equal in (False, NotImplemented):
                for kind in (collections.deque, list):
                    made = kind()
                    made.extend([Clears(made, equal), "c"])
                    answers.append(repr(outcome(getattr(made, name), "c")))
        return x + 1, answers

    check(fn, t(), skips=None)


def test_default_factory_is_what_was_given() -> None:
    def factory() -> list[int]:
        return [1]

    def fn(x: torch.Tensor) -> Any:
        made = collections.defaultdict(factory)
        others = copy.copy(made), made.copy()
        return x + made["a"][0], made.default_factory is factory, [o.default_factory is factory for o in others], made

    check(fn, t())


def test_items_of_a_deque_are_set_under_its_iterators() -> None:
    def fn(x: torch.Tensor, found: Any) -> Any:
        iterator = iter(found)
        first = next(iterator)
        graph_break()
        for i in range(len(found)):
            found[i] = i * 10
        return x + first, list(iterator)

    check(fn, t(), collections.deque([1, 2, 3]))


def test_dictionaries_with_their_own_iteration() -> None:
    class Backwards(dict[Any, Any]):
        def __iter__(self) -> Any:
            return reversed([*dict.keys(self)])

    given = Backwards(a=1, b=2)
    check(lambda x, d: (x + d["a"], [*d], {**d}, list(d.items()), len(d)), t(), given, skips=None)
