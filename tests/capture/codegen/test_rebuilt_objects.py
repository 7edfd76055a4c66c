"""Objects that outlive the frame hold tensors, numbers and arrays, never what stands for them while capturing."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
import typing
from typing import Any

import numpy as np
import pytest
import torch
from helpers import check, compile_fn, graph_break, observe, t

VALUES: dict[str, list[Any]] = {
    "integers": [2, 3, 4],
    "floats": [0.5, 1.5, 2.5],
    "scalars of NumPy": [np.float64(1.5), np.float64(2.5)],
    "arrays": [np.arange(2.0)],
    "tensors": [torch.ones(2)],
}


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self, more: Any = None, *, named: Any = None) -> Any:
        return self.value, more, named


def _class_of(value: Any) -> Any:
    class Made:
        @property
        def value(self) -> Any:
            return value

        @staticmethod
        def plain() -> Any:
            return value

    return Made


OBJECTS: dict[str, tuple[Any, Any]] = {  # what makes one, and what tells what it holds
    "property": (lambda v: property(lambda self: v), lambda made: made.fget(None)),
    "property of a class": (_class_of, lambda made: (made().value, made.plain())),
    "class": (lambda v: type("Made", (), {"value": v}), lambda made: (made.value, made.__module__)),
    "methodcaller": (lambda v: operator.methodcaller("get", v), lambda made: made(Holder(1))),
    "methodcaller by name": (lambda v: operator.methodcaller("get", named=v), lambda made: made(Holder(1))),
    "itemgetter": (lambda v: operator.itemgetter("a", "b"), lambda made: made({"a": 1, "b": 2})),
    "itemgetter of it": (lambda v: operator.itemgetter([v]), lambda made: made.__reduce__()[1]),
    "attrgetter": (lambda v: operator.attrgetter("value"), lambda made: made(Holder(3))),
    "alias": (lambda v: typing.ChainMap({"a": v}), lambda made: made["a"]),
    "alias of what is no mapping": (lambda v: typing.ChainMap(v), lambda made: made.maps),
}


def picture(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [picture(v) for v in value]
    return type(value), value.tolist() if isinstance(value, (torch.Tensor, np.ndarray)) else value


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("computed", [False, True])
def test_made_inside(name: str, kind: str, computed: bool) -> None:
    make, tell = OBJECTS[name]

    def fn(x: torch.Tensor, value: Any) -> Any:
        return x + 1, make(value * 2 if computed else value)

    compiled = compile_fn(fn)
    for value in VALUES[kind]:
        assert picture(tell(compiled(t(2), value)[1])) == picture(tell(fn(t(2), value)[1]))


CALLERS: dict[str, Any] = {
    "type": lambda: type("Made", (), {}),
    "type with a module": lambda: type("Made", (), {"__module__": "elsewhere"}),
    "an enumeration": lambda: enum.Enum("Made", "A B"),
    "NewType": lambda: typing.NewType("Made", int),
    "TypeVar": lambda: typing.TypeVar("Made"),
    "namedtuple": lambda: collections.namedtuple("Made", "a b"),  # noqa: PYI024
    "new_class": lambda: types.new_class("Made"),
}


@pytest.mark.parametrize("name", CALLERS)
def test_classes_have_the_module_of_the_code_that_made_them(name: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x + 1, CALLERS[name]().__module__

    assert compile_fn(fn)(t())[1] == fn(t())[1]


def test_lists_grow_by_arrays_as_numpy_says() -> None:
    def fn(x: torch.Tensor, items: Any, row: Any) -> Any:
        made = [1.0, 2.0]
        made += row
        items += row
        return x + 1, made, items

    args = t(), [3.0, 4.0], np.arange(2.0)
    got, wanted = compile_fn(fn)(*args), fn(*args)
    assert picture(got[1:]) == picture(wanted[1:])


def test_getters_stay_in_one_graph() -> None:
    def fn(x: torch.Tensor) -> Any:
        pick = operator.itemgetter(1)
        return pick([x, x * 2]), operator.methodcaller("add", 1)(x), pick

    with observe() as seen:
        assert compile_fn(fn)(t())[2]([1, 2]) == 2
    assert len(seen.graphs) == 1 and not seen.breaks


class Reflexive:
    def __init__(self) -> None:
        self.value: Any = None

    def __repr__(self) -> str:
        return repr(self.value)


class Pair(tuple[Any, ...]):
    pass


@pytest.mark.parametrize("kind", [set, frozenset, tuple, list, Pair])
@pytest.mark.parametrize("breaks", [False, True])
def test_container_whose_item_leads_back_to_it_is_one_object(kind: Any, breaks: bool) -> None:
    def fn(x: torch.Tensor) -> Any:
        item = Reflexive()
        made = item.value = kind([item])
        if breaks:
            graph_break()
        return made, x + 1, [i.value is made for i in made]

    made, _, inside = compile_fn(fn)(t())
    assert inside == [True]
    assert [i.value is made for i in made] == [True]


def test_names_and_annotations_that_two_functions_share() -> None:
    def fn(x: torch.Tensor) -> Any:
        def wrapped(a: "an annotation") -> None:  # type: ignore[name-defined,valid-type] # noqa: F722
            """Text."""

        @functools.wraps(wrapped)
        def wrapper(b: int) -> None: ...

        graph_break()
        names = (*functools.WRAPPER_ASSIGNMENTS, "__annotations__")
        return x + 1, [getattr(wrapper, name) is getattr(wrapped, name) for name in names]

    check(fn, t(), skips=None)


def test_generator_has_the_name_of_its_function() -> None:
    def fn(x: torch.Tensor) -> Any:
        def numbers() -> Any:
            yield 1

        numbers.__name__ = "renamed"
        made, named = numbers(), numbers().__name__
        graph_break()
        return x + 1, named, made.__name__, made.__qualname__ == numbers.__qualname__

    check(fn, t())


def test_instance_that_claims_to_be_text() -> None:
    class Claims:
        __class__ = property(lambda self: str)  # type: ignore[assignment]

    def fn(x: torch.Tensor) -> Any:
        made = Claims()
        graph_break()
        return x + 1, type(made) is Claims, isinstance(made, str)

    check(fn, t(), skips=None)
