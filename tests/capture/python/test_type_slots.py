"""Objects whose class answers for attributes in C: each form of a question gets the same answer."""

from __future__ import annotations

import collections
import collections.abc
import decimal
import functools
import gc
import inspect
import itertools
import threading
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check_scenario, compile_fn, observe, storybook, t

from jitney.capture.python import type_slots

Compile = Callable[[Any], Any]
story, test_story = storybook()


class Held:
    def __init__(self) -> None:
        self.a = 1

    def __len__(self) -> int:
        return 2

    def __contains__(self, item: Any) -> bool:
        return bool(item == 1)

    def __iter__(self) -> Any:
        return iter((1, 2))

    def method(self) -> int:
        return self.a + 1

    @property
    def doubled(self) -> int:
        return self.a * 2


class Mapped(dict[str, int]):
    pass


class Local(threading.local):
    shared = 3

    def __init__(self) -> None:
        self.a = 1

    def method(self) -> int:
        return self.a


HELD = Held()
MAPPED = Mapped(a=1)


def plain_local() -> Any:
    made = threading.local()
    made.a = 1
    return made


OBJECTS: dict[str, Callable[[], Any]] = {
    "local": plain_local,
    "local subclass": Local,
    "proxy": lambda: weakref.proxy(HELD),
    "proxy of a mapping": lambda: weakref.proxy(MAPPED),
    "proxy of a function": lambda: weakref.proxy(plain_local),
    "method": lambda: HELD.method,
    "alias": lambda: list[int],
    "union": lambda: int | None,
    "context": decimal.Context,
    "namespace": lambda: types.SimpleNamespace(a=1),
    "partial": lambda: functools.partial(min, 1),
}
NAMES = (
    "a shared method doubled missing prec flags keys __class__ __dict__ __doc__ __len__ __module__ __name__ __func__ "
    "__self__ __origin__ __args__ __weakref__ __wrapped__"
).split()


def shown(value: Any) -> Any:
    return value if isinstance(value, (int, str, type)) else type(value)


def write(obj: Any) -> Any:
    obj.new = 3
    obj.a = 4
    return obj.new, obj.a, hasattr(obj, "new"), getattr(obj, "a", 0), shown(obj)


def delete(obj: Any) -> Any:
    del obj.a
    return hasattr(obj, "a")


def matched(obj: Any) -> str:
    match obj:
        case Held(a=1):
            return "held"
        case {"a": 1}:
            return "mapping"
        case [1, 2]:
            return "sequence"
        case object(a=1):
            return "object"
    return "none"


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "write": write,
    "delete": delete,
    "set past the class": lambda o: object.__setattr__(o, "a", 5),
    "read past the class": lambda o: object.__getattribute__(o, "a"),
    "read by the class": lambda o: type(o).__getattribute__(o, "a"),
    "set by the class": lambda o: (type(o).__setattr__(o, "a", 5), o.a),
    "vars": lambda o: sorted(vars(o)),
    "dir": lambda o: "a" in dir(o),
    "contains": lambda o: 1 in o,
    "len": len,
    "bool": bool,
    "list": list,
    "class": lambda o: isinstance(o, Held),
    "abstract class": lambda o: isinstance(o, collections.abc.Mapping),
    "match": matched,
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_each_form_of_a_question_about_attributes_is_answered_alike(kind: str) -> None:
    def scenario(compile: Compile) -> Any:
        def asked(obj: Any, name: str) -> Any:
            static = inspect.getattr_static(obj, name, None) is not None
            return hasattr(obj, name), shown(getattr(obj, name, "default")), static

        called = compile(asked)
        return [called(OBJECTS[kind](), name) for name in NAMES]

    check_scenario(scenario)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("kind", OBJECTS)
def test_questions_about_the_whole_object_are_answered_as_in_eager(kind: str, question: str) -> None:
    def scenario(compile: Compile) -> Any:
        for held in (HELD, MAPPED, plain_local):
            vars(held).clear()
            held.a = 1  # type: ignore[attr-defined]
        called = compile(QUESTIONS[question])
        try:
            return shown(called(OBJECTS[kind]()))
        except Exception as error:
            return type(error), str(error)

    check_scenario(scenario)


@story
def a_local_belongs_to_the_thread(compile: Compile) -> Any:
    local = threading.local()

    def fn(x: torch.Tensor) -> Any:
        count = getattr(local, "count", 0)
        local.count = count + 1
        if hasattr(local, "gone"):
            del local.gone
            return x * 100
        return x * local.count

    called = compile(fn)
    out = [called(t()), called(t())]
    local.gone = True
    out += [called(t()), hasattr(local, "gone")]

    def in_thread() -> None:
        out.extend([called(t()), called(t()), dict(vars(local))])

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    return out, dict(vars(local))


@story
def what_a_proxy_stands_for_changes_its_class(compile: Compile) -> Any:
    first, second = Held(), Mapped()
    called = compile(lambda x, p: x * 2 if isinstance(p, Held) else x * 3)
    return [called(t(), weakref.proxy(held)) for held in (first, second, first)]


def test_a_local_is_captured() -> None:
    local = plain_local()

    def fn(x: torch.Tensor) -> Any:
        local.a += 1
        return x * local.a if hasattr(local, "a") else x

    with observe() as seen:
        compile_fn(fn)(t())
    assert not seen.breaks
    assert not seen.skips


def test_who_looks_through_all_objects_meets_nothing_that_raises():
    own = [o for o in gc.get_objects() if type(o).__module__ == type_slots.__name__]
    assert own and not any(isinstance(o, torch.Tensor) for o in own)


NAMED = (
    collections.deque(), iter(collections.deque()), collections.OrderedDict(), collections.Counter(), itertools.count(),
    functools.partial(len), decimal.Decimal(1), types.SimpleNamespace(), typing.TypeVar("T"), Held(), 3, None, len,
)  # fmt: skip


@pytest.mark.parametrize("value", NAMED, ids=lambda value: type(value).__name__)
def test_classes_have_in_messages_the_name_that_this_python_gives_them(value: Any) -> None:
    with pytest.raises(TypeError) as caught:
        value @ 1
    assert str(caught.value) == f"unsupported operand type(s) for @: {type_slots.name_in_c(type(value))!r} and 'int'"

    def fn(x: torch.Tensor, own: Any) -> Any:
        messages = []
        for operation in (lambda: own.lacking, lambda: own @ 1, lambda: own < 1j, lambda: own()):
            try:
                messages.append(operation())
            except (AttributeError, TypeError) as error:
                messages.append(str(error))
        return x + 1, messages

    assert compile_fn(fn)(t(), value)[1] == fn(t(), value)[1]


OUTER = typing.TypeVar("OUTER")


def test_attributes_of_type_variables() -> None:
    """From Python 3.12 on they have attributes of their own in a dictionary that they do not show."""

    def fn(x: torch.Tensor) -> Any:
        made = typing.TypeVar("made", bound=int)
        return x + 1, [(v.__module__, v.__name__, hasattr(v, "__bound__"), hasattr(v, "x")) for v in (OUTER, made)]

    assert compile_fn(fn)(t())[1] == fn(t())[1]
    assert fn(t())[1][0][0] == __name__


class Shows:
    """Has another dictionary by the name of the one in which its attributes are."""

    def __init__(self) -> None:
        self.a = 2

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return {"b": 3}


class Shadows:
    a = 5
    __dict__ = {"b": 3}  # type: ignore[assignment]  # noqa: RUF012

    def __init__(self) -> None:
        self.a = 2


@pytest.mark.parametrize("kind", [Shows, Shadows])
def test_attributes_where_the_class_has_another_dict(kind: Any) -> None:
    def scenario(compile: Compile) -> Any:
        given = kind()

        def fn(x: torch.Tensor) -> Any:
            made = kind()
            made.c = given.c = 4
            return x * given.a, made.a, hasattr(given, "b"), hasattr(made, "b"), given.__dict__, vars(made)

        return compile(fn)(t()), given.c

    check_scenario(scenario)
