"""Small rules of Python's data model that capture applies itself: they are CPython's to the letter."""

from __future__ import annotations

import collections
import copy
import enum
import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, check_scenario, graph_break, outcome, storybook, t

Compile = Callable[[Any], Any]
story, test_story = storybook()


class Plain:
    pass


class OfAny:
    def __new__(cls, *args: Any) -> Any:
        return object.__new__(cls, *args)

    def __init__(self, *args: Any) -> None:
        pass


class PassesOn:
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)


class Returns:
    def __init__(self, value: Any) -> None:
        return value


@pytest.mark.parametrize("wrong", [
    lambda: Plain(1),
    lambda: Plain(a=1),
    lambda: object.__new__(Plain, 3),
    lambda: OfAny(1),
    lambda: OfAny(),
    lambda: PassesOn(1),
    lambda: PassesOn(),
    lambda: dict(**{1: 2}),
    lambda: Plain(**{1: 2}),
    lambda: Returns(10),
    lambda: Returns(None),
    lambda: Returns(t()),
    lambda: object.__getattribute__(Returns, "missing"),
])  # fmt: skip
def test_making_instances(wrong: Any) -> None:
    def scenario(compile: Compile) -> Any:
        def fn(x: torch.Tensor) -> Any:
            made = wrong()
            return x + 1, type(made)

        called = compile(fn)
        return outcome(called, t()), outcome(called, t())

    check_scenario(scenario)


@story
def init_that_returns_within_a_comprehension_and_a_sort(compile: Compile) -> Any:
    def fn(x: torch.Tensor) -> Any:
        try:
            return [Returns(v) for v in (None, 3)]
        except TypeError as error:
            first = str(error)
        try:
            return sorted((1, 2), key=lambda v: (Returns(v), v)[1])
        except TypeError as error:
            return first, str(error), x + 1

    return compile(fn)(t())


@story
def lists_that_change_while_they_are_sorted(compile: Compile) -> Any:
    def fn(x: torch.Tensor, values: list[int], change: Any) -> Any:
        seen: list[int] = []

        def key(value: int) -> int:
            seen.append(len(values))
            change(values)
            return -value

        try:
            values.sort(key=key)
        except (ValueError, KeyError) as error:
            return repr(error), seen, list(values), x + 1
        return seen, list(values), x + 1

    def fails(values: Any) -> None:
        raise KeyError(1)

    def appends(values: list[int]) -> None:
        values.append(1)

    def appends_and_pops(values: list[int]) -> None:
        values.append(1)
        values.pop()

    called = compile(fn)
    out = []
    for change in (appends, appends_and_pops, fails, len):
        given = [3, 1, 2]
        out.append((called(t(), given, change), given))
    return out


@story
def a_break_in_a_sort_leaves_the_list_as_it_was(compile: Compile) -> Any:
    def fn(x: torch.Tensor) -> Any:
        values = [3, 1, 2]
        values.sort(key=lambda v: print(v) or v)  # type: ignore[func-returns-value]
        return x + 1, values

    return compile(fn)(t())


@story
def counters_beside_other_dictionaries(compile: Compile) -> Any:
    def fn(x: torch.Tensor, counter: Any, other: Any) -> Any:
        return counter == other, other == counter, counter != other, x + 1

    called = compile(fn)
    counter = collections.Counter(a=1)
    others = ({"a": 1}, {"a": 2}, collections.OrderedDict(a=1), collections.Counter(a=1), [("a", 1)], None)
    return [called(t(), counter, other) for other in others], compile(lambda: collections.Counter(a=1) == {"a": 1})()


@story
def copies_that_are_the_object_itself(compile: Compile) -> Any:
    def fn(x: torch.Tensor) -> Any:
        values = slice(1, 2), (1, [2]), frozenset({1}), [3], {"a": [4]}
        copied = [copy.copy(value) for value in values]
        return [a is b for a, b in zip(values, copied, strict=True)], copied[4]["a"] is values[4]["a"], x[copied[0]]

    return compile(fn)(t())


class Writes:
    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)["field"] = value * 2


class Deletes:
    def __delete__(self, instance: Any) -> None:
        vars(instance)["gone"] = True


class Fields:
    field = Writes()
    other = Deletes()


@story
def descriptors_without_get_do_not_hide_the_instance(compile: Compile) -> Any:
    def fn(x: torch.Tensor, made: Any) -> Any:
        before = type(made.field).__name__
        made.field = 3
        vars(made)["other"] = 4
        out = before, made.field, made.other, x * made.field
        del made.other
        return *out, made.gone

    called = compile(fn)
    return called(t(), Fields()), compile(lambda x: fn(x, Fields()))(t())


class Counted(int):
    hashed: int

    def __new__(cls, value: int) -> Any:
        made = super().__new__(cls, value)
        made.hashed = 0
        return made

    def __hash__(self) -> int:
        self.hashed += 1
        return int.__hash__(self)


@story
def sets_of_dictionaries_do_not_hash_their_keys_anew(compile: Compile) -> Any:
    def fn(given: dict[Any, Any]) -> Any:
        made = set(given)
        return len(made), sum(key.hashed for key in given)

    called = compile(fn)
    return [called(dict.fromkeys(map(Counted, range(5)))) for _ in range(2)]


@story
def members_and_methods_of_enums_are_deleted(compile: Compile) -> Any:
    class Outside(enum.Enum):
        A = 1

        def method(self) -> None:
            pass

    def fn(x: torch.Tensor) -> Any:
        class Within(enum.Enum):
            A = 1

            def method(self) -> None:
                pass

        class Base:
            field = 1

        out = []
        for cls, name in ((Within, "method"), (Within, "A"), (Outside, "method"), (Outside, "A"), (Base, "field")):
            try:
                delattr(cls, name)
            except AttributeError as error:
                out.append(str(error))
            out.append(str(hasattr(cls, name)))
        try:
            del Base.field
        except AttributeError as error:
            out.append(str(error))
        return out, x + 1

    return compile(fn)(t())


def with_match_args(names: Any) -> Any:
    return type("Point", (), {"__match_args__": names, "a": 1, "b": 2})


class Number(int):
    pass


@pytest.mark.parametrize("names", [("a", "b"), ("a", "a"), ["a", "b"], (None, "a"), ("a", 1), "ab", (), None], ids=repr)
def test_match_args_are_checked(names: Any) -> None:
    def scenario(compile: Compile) -> Any:
        cls: Any = with_match_args(names)

        def by_position(value: Any) -> Any:
            match value:
                case cls(u, v):
                    return u, v
            return "none"

        def by_both(value: Any) -> Any:
            match value:
                case cls(u, a=v):
                    return u, v
            return "none"

        def of_numbers(value: Any) -> Any:
            match value:
                case Number(n):
                    return n
                case Plain(n):
                    return n
            return "none"

        return [outcome(compile(fn), cls()) for fn in (by_position, by_both)] + [
            outcome(compile(lambda: of_numbers(Number(3)))), outcome(compile(of_numbers), Plain())
        ]  # fmt: skip

    check_scenario(scenario)


@story
def a_class_pattern_of_what_is_no_class(compile: Compile) -> Any:
    pattern: Any = 5

    def fn(x: torch.Tensor) -> Any:
        match x:
            case pattern():
                return x
        return x + 1

    return outcome(compile(fn), t())


class Base:
    def name(self) -> str:
        return "base"


class Renamed(Base):
    def deleted(self) -> Any:
        del self
        return super().name()

    def captured(self) -> Any:
        return [(lambda: self)() is self, super().name()]


def test_super_takes_what_the_first_argument_is_now() -> None:
    check(lambda x: (x, Renamed().captured()), t(), breaks=0)
    error = RuntimeError if sys.version_info < (3, 12) else UnboundLocalError  # of super() with no first argument
    check(lambda x: (x, Renamed().deleted()), t(), raises=error)


class Picks:
    def __new__(cls, arg: Any) -> Any:
        return object.__new__(Picked) if arg else object.__new__(cls)


class Picked(Picks):
    def __init__(self, arg: Any) -> None:
        self.arg = arg


def test_the_class_of_what_new_gives_initialises_it() -> None:
    check(lambda x: (x, vars(Picks(3)), vars(Picks(0)), vars(Picked(0))), t(), breaks=0)


class Halved:
    def __init__(self) -> None:
        self.value = 1

    @property
    def twice(self) -> int:
        return self.value * 2

    @twice.setter
    def twice(self, value: int) -> None:
        self.value = value // 2

    @twice.deleter
    def twice(self) -> None:
        del self.value


def test_methods_of_a_property_are_called_by_hand() -> None:
    def fn(x: torch.Tensor, counted: Any) -> Any:
        Halved.twice.__set__(counted, 10)
        seen = Halved.twice.__get__(counted), counted.value
        Halved.twice.__delete__(counted)
        return x, seen

    check(fn, t(), Halved(), breaks=0, calls=1)

    def broken(x: torch.Tensor, counted: Any) -> Any:
        Halved.twice.__set__(counted, counted.value * 4)
        graph_break()
        return x + counted.value

    check(broken, t(), Halved(), calls=1)


class Items(dict[str, Any]):
    __setattr__ = dict.__setitem__


def test_attributes_are_set_by_whatever_method_the_class_has_for_it() -> None:
    def fn(x: torch.Tensor) -> Any:
        made = Items()
        made.y = 42
        return x, made["y"], vars(made)

    check(fn, t())


def test_members_of_c_classes_may_be_for_reading_only() -> None:
    prop, partial = Halved.__dict__["twice"], functools.partial(len, ())

    def fn(x: torch.Tensor) -> Any:
        x = x + 1
        refused = []
        for owner, name in ((prop, "fget"), (partial, "func")):
            try:
                setattr(owner, name, 42)
            except AttributeError as error:
                refused.append(str(error))
        return x, refused

    check(fn, t())


class Slotted:
    __slots__ = ("a",)


def test_a_slot_that_is_filled_and_emptied_again() -> None:
    def fn(x: torch.Tensor, made: Any) -> Any:
        made.a = 1
        del made.a
        return x + 1, hasattr(made, "a")

    check(fn, t(), Slotted(), breaks=0)


class Frozen(frozenset[Any]):
    pass


class Pair(tuple[Any, ...]):
    pass


@pytest.mark.parametrize("kind", [Frozen, Pair])
def test_immutable_containers_refuse_keywords_as_c_code_does(kind: Any) -> None:
    check(lambda x: (x, kind(items=())), t(), raises=TypeError)


class Tagged(int):
    seen = 0


def test_equal_numbers_of_a_subclass_are_several_objects() -> None:
    def scenario(compile: Any) -> Any:
        def count(pair: Any) -> Any:
            pair[0].seen += 1
            return pair[0].seen

        called, a, b = compile(count), Tagged(5), Tagged(5)
        return [called((a, 2)), called((b, 2)), called((b, 2)), a.seen, b.seen]

    check_scenario(scenario)


class Caching(int):
    calls = 0

    @functools.lru_cache(2)
    def twice(self) -> int:
        self.calls += 1
        return self * 2


def test_a_cached_method_writes_to_what_the_frame_has_made() -> None:
    def scenario(compile: Any) -> Any:
        Caching.twice.cache_clear()

        def fn(x: torch.Tensor) -> Any:
            made = Caching(4)
            return x, made.twice(), made.twice(), made.calls

        return compile(fn)(t())

    check_scenario(scenario)


def test_a_proxy_whose_object_is_gone() -> None:
    def fn(x: torch.Tensor, proxy: Any) -> Any:
        try:
            return x, proxy.value
        except ReferenceError:
            return x + 1

    def scenario(compile: Any) -> Any:
        return compile(fn)(t(), weakref.proxy(Halved()))

    check_scenario(scenario)


def test_what_a_class_refuses_to_delete_is_not_deleted_by_capture() -> None:
    def scenario(compile: Any) -> Any:
        class Season(enum.Enum):
            SPRING = 1

            def spam(self) -> None:
                """To be deleted."""

        def fn(x: torch.Tensor) -> Any:
            before = hasattr(Season, "spam")
            del Season.spam  # type: ignore[method-assign]
            Season.other = 3  # type: ignore[attr-defined]
            return x, before, hasattr(Season, "spam"), Season.other  # type: ignore[attr-defined]

        return compile(fn)(t())

    check_scenario(scenario)
