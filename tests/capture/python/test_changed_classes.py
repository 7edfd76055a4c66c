"""Stories about classes that a program changes between two calls: their bases, their members, what they register."""

from __future__ import annotations

import abc
import collections.abc
import enum
from collections.abc import Callable
from typing import Any

from helpers import storybook, t

Compile = Callable[[Any], Any]
story, test_story = storybook()


class Left:
    def side(self) -> int:
        return 1


class Right:
    def side(self) -> int:
        return 2

    def __bool__(self) -> bool:
        return False


def derived(*bases: type) -> Any:
    return type("Derived", bases, {})


def between(fn: Callable[..., Any], change: Callable[[], Any], *args: Any) -> Any:
    before = fn(t(), *args)
    change()
    return before, fn(t(), *args)


@story
def other_bases_isinstance(compile: Compile) -> Any:
    cls = derived(Left)
    fn = compile(lambda x, o: x + isinstance(o, Left))
    return between(fn, lambda: setattr(cls, "__bases__", (Right,)), cls())


@story
def other_bases_of_a_base_issubclass(compile: Compile) -> Any:
    cls = derived(Left)
    below = derived(cls)
    fn = compile(lambda x: x + issubclass(below, Left))
    return between(fn, lambda: setattr(cls, "__bases__", (Right,)))


@story
def other_bases_super(compile: Compile) -> Any:
    class Derived(Left):
        def side(self) -> int:
            return super().side() * 10

    fn = compile(lambda x, o: x + o.side())
    return between(fn, lambda: setattr(Derived, "__bases__", (Right,)), Derived())


@story
def other_bases_truth(compile: Compile) -> Any:
    cls = derived(Left)
    fn = compile(lambda x, o: x + 1 if o else x - 1)
    return between(fn, lambda: setattr(cls, "__bases__", (Right,)), cls())


@story
def other_bases_of_an_exception(compile: Compile) -> Any:
    class First(Exception): ...

    class Second(Exception): ...

    class Raised(First): ...

    def fn(x: Any) -> Any:
        try:
            raise Raised
        except First:
            return x + 1
        except Second:
            return x + 2

    return between(compile(fn), lambda: setattr(Raised, "__bases__", (Second,)))


@story
def other_bases_match(compile: Compile) -> Any:
    cls = derived(Left)

    def fn(x: Any) -> Any:
        match cls():
            case Left():
                return x + 1
            case _:
                return x + 2

    return between(compile(fn), lambda: setattr(cls, "__bases__", (Right,)))


@story
def registered_with_an_abstract_class(compile: Compile) -> Any:
    class Abstract(abc.ABC): ...

    cls = derived(Left)
    fn = compile(lambda x: x + issubclass(cls, Abstract) + 10 * isinstance(cls(), Abstract))
    return between(fn, lambda: Abstract.register(cls))


@story
def registered_with_an_abstract_class_of_the_library(compile: Compile) -> Any:
    cls = derived(Left)
    fn = compile(lambda x, o: x + isinstance(o, collections.abc.Mapping))
    return between(fn, lambda: collections.abc.Mapping.register(cls), cls())


@story
def a_metaclass_answers(compile: Compile) -> Any:
    class Meta(type):
        def __subclasscheck__(cls, other: type) -> bool:
            return hasattr(other, "mark")

    class Marked(metaclass=Meta): ...

    cls = derived(Left)
    fn = compile(lambda x: x + issubclass(cls, Marked))
    return between(fn, lambda: setattr(cls, "mark", 1))


def _norms() -> Any:
    class Norm(enum.Enum):
        BATCH = 1
        GROUP = {"groups": 2}  # noqa: RUF012

    return Norm


@story
def a_member_of_an_enumeration_gets_another_value(compile: Compile) -> Any:
    norm = _norms()
    fn = compile(lambda x, m: (x * m.value, m._value_))
    return between(fn, lambda: setattr(norm.BATCH, "_value_", 7), norm.BATCH)


@story
def a_member_of_an_enumeration_gets_another_name(compile: Compile) -> Any:
    norm = _norms()
    fn = compile(lambda x, m: (x, str(m), repr(m), m.name))
    return between(fn, lambda: setattr(norm.BATCH, "_name_", "OTHER"), norm.BATCH)


@story
def the_value_of_a_member_is_changed(compile: Compile) -> Any:
    norm = _norms()
    fn = compile(lambda x: x * norm.GROUP.value["groups"])
    return between(fn, lambda: norm.GROUP.value.update(groups=5))


@story
def a_property_of_members(compile: Compile) -> Any:
    class Size(enum.Enum):
        SMALL = 1

        @enum.property
        def doubled(self) -> int:
            return 2 * self._value_

    fn = compile(lambda x, m: x * m.doubled)
    return between(fn, lambda: setattr(Size.SMALL, "_value_", 5), Size.SMALL)


@story
def an_enumeration_is_extended(compile: Compile) -> Any:
    norm = _norms()

    def extend() -> None:
        made = object.__new__(norm)
        made._name_, made._value_, made.__objclass__, made._sort_order_ = "LAYER", 3, norm, 2
        norm._member_map_["LAYER"] = norm._value2member_map_[3] = made
        norm._member_names_.append("LAYER")

    def fn(x: Any) -> Any:
        try:
            return x * norm(3).value, len(norm)
        except ValueError as error:
            return str(error), len(norm), [m.name for m in norm]

    return between(compile(fn), extend)


@story
def a_descriptor_gets_a_setter(compile: Compile) -> Any:
    kind: Any = type("Kind", (), {"__get__": lambda *_: 3})
    made = type("Owner", (), {"size": kind()})()

    def fn(x: Any) -> Any:
        made.size = 10
        return x * made.size

    called = compile(fn)
    return between(called, lambda: setattr(kind, "__set__", lambda *_: None)), dict(made.__dict__)


@story
def a_descriptor_loses_its_setter(compile: Compile) -> Any:
    kind: Any = type("Kind", (), {"__get__": lambda *_: 3, "__set__": lambda *_: None})
    made = type("Owner", (), {"size": kind()})()
    made.__dict__["size"] = 10
    fn = compile(lambda x: x * made.size)
    return between(fn, lambda: delattr(kind, "__set__"))
