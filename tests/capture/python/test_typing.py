"""Generic aliases, protocols and class methods around other descriptors, as ``typing`` and Python define them."""

from __future__ import annotations

import typing
from typing import Any, Generic, Protocol, TypeVar

import torch
from helpers import check, outcome, t

T = TypeVar("T")


class Walks(Protocol):
    def walk(self) -> int:
        return 3


class Dog(Walks):
    pass


class Cat(Walks):
    pass


def test_classes_below_a_protocol() -> None:
    check(lambda x: (x + Dog().walk(), Dog().walk(), type(Cat()).__name__, outcome(Walks)), t(), skips=None)


def test_runtime_protocol_sees_writes_that_wait() -> None:
    @typing.runtime_checkable
    class HasX(Protocol):
        x: int

    class Plain:
        pass

    def fn(x: torch.Tensor, found: Any) -> Any:
        before = isinstance(found, HasX)
        found.x = 42
        during = isinstance(found, HasX)
        del found.x
        return x + 1, before, during, isinstance(found, HasX)

    check(fn, t(), Plain(), skips=None)


def test_aliases_that_make_no_instances() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x + 1, outcome(typing.List[int]), outcome(list[int]), outcome(typing.Dict), outcome(typing.Optional[int])

    check(fn, t(), skips=None)


def test_attributes_by_an_alias() -> None:
    def fn(x: torch.Tensor) -> Any:
        class Box(Generic[T]):
            name = "before"

        Box[int].name = "after"
        return x + 1, Box.name, Box[str].name, Box[int]().name

    check(fn, t(), skips=None)


def test_class_methods_around_other_descriptors() -> None:
    class Shows:
        def __get__(self, instance: Any, owner: Any = None) -> str:
            return f"{instance.__name__} {owner.__name__}"

    class Made:
        name = classmethod(property(lambda cls: cls.__name__))  # type: ignore[arg-type]
        shown = classmethod(Shows())  # type: ignore[arg-type]
        twice = classmethod(classmethod(lambda cls: cls.__name__))  # type: ignore[arg-type]
        size = classmethod(len)  # type: ignore[arg-type]

    def fn(x: torch.Tensor) -> Any:
        answers: list[Any] = []
        for name in ("name", "shown", "twice", "size"):
            try:
                found = getattr(Made, name)
                answers.append(found() if callable(found) else found)
            except TypeError as error:
                answers.append(str(error))
        return x + 1, answers

    check(fn, t(), skips=None)
