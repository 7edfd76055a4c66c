"""Calls that C code refuses, and keyword arguments that are named as parameters of ours: all as in eager."""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import itertools
import math
import operator
import string
import sys
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, check_scenario, compile_fn, t


class Plain:
    """Takes any keyword."""

    def __init__(self, /, **named: Any) -> None:
        self.named = named

    def method(self, /, **named: Any) -> Any:
        return named

    def __call__(self, /, **named: Any) -> Any:
        return named


def taken(*args: Any, **named: Any) -> Any:
    return args, named


def generated(**named: Any) -> Any:
    yield named


C: Any = sys.modules["builtins"]  # what is called wrongly here, past mypy
F: Any = functools
OP: Any = operator
IT: Any = itertools
TUPLE = (1,)
L: Any = [1]
D: Any = {1: 2}

REFUSED: dict[str, Callable[[], Any]] = {
    "getattr(x)": lambda: C.getattr(3),
    "getattr(4)": lambda: C.getattr(3, "a", 1, 2),
    "getattr(name=)": lambda: C.getattr(3, name="x"),
    "setattr(2)": lambda: C.setattr(Plain(), "x"),
    "setattr(int)": lambda: C.setattr(Plain(), 4, 4),
    "delattr(1)": lambda: C.delattr(Plain()),
    "delattr(int)": lambda: C.delattr(Plain(), 4),
    "isinstance(1)": lambda: C.isinstance(3),
    "issubclass(1)": lambda: C.issubclass(int),
    "callable()": lambda: C.callable(),
    "id()": lambda: C.id(),
    "hash(2)": lambda: C.hash(1, 2),
    "vars(2)": lambda: C.vars(1, 2),
    "len(2)": lambda: C.len([], 1),
    "iter(3)": lambda: C.iter(1, 2, 3),
    "next()": lambda: C.next(),
    "format(3)": lambda: C.format(1, "", 2),
    "type(2)": lambda: C.type(1, 2),
    "super(3)": lambda: C.super(1, 2, 3),
    "filter()": lambda: C.filter(),
    "reversed()": lambda: C.reversed(),
    "sorted()": lambda: C.sorted(),
    "max()": lambda: C.max(),
    "any()": lambda: C.any(),
    "{}.get()": lambda: D.get(),
    "{}.get(key=)": lambda: D.get(key=1),
    "{}.__getitem__()": lambda: D.__getitem__(),
    "{}.__contains__()": lambda: D.__contains__(),
    "{}.setdefault()": lambda: D.setdefault(),
    "{}.update(2)": lambda: D.update(1, 2),
    "{}.fromkeys()": lambda: D.fromkeys(),
    "{}.fromkeys(3)": lambda: D.fromkeys(3),
    "OrderedDict.fromkeys()": lambda: typing.cast(Any, collections.OrderedDict).fromkeys(),
    "defaultdict(3)": lambda: typing.cast(Any, collections.defaultdict)(3),
    "[].__setitem__()": lambda: L.__setitem__(),
    "[].append()": lambda: L.append(),
    "[].index()": lambda: L.index(),
    "().count()": lambda: typing.cast(Any, TUPLE).count(),
    "','.join()": lambda: typing.cast(Any, ",").join(),
    "object.__setattr__(2)": lambda: C.object.__setattr__(Plain(), "a"),
    "object.__getattribute__(1)": lambda: C.object.__getattribute__(Plain()),
    "__eq__()": lambda: typing.cast(Any, Plain()).__eq__(),
    "object.__new__()": lambda: C.object.__new__(),
    "tuple.__new__(3)": lambda: C.tuple.__new__(3),
    "int.__new__()": lambda: C.int.__new__(),
    "dict.__new__()": lambda: C.dict.__new__(),
    "torch.Size(3)": lambda: typing.cast(Any, torch.Size)(3),
    "reduce()": lambda: F.reduce(),
    "partial()": lambda: F.partial(),
    "cmp_to_key()": lambda: F.cmp_to_key(),
    "operator.setitem(1)": lambda: OP.setitem([1]),
    "itemgetter(1)()": lambda: OP.itemgetter(1)(),
    "attrgetter('a')()": lambda: OP.attrgetter("a")(),
    "methodcaller('a')()": lambda: OP.methodcaller("a")(),
    "chain.from_iterable()": lambda: IT.chain.from_iterable(),
    "math.prod()": lambda: typing.cast(Any, math).prod(),
    "copy.copy()": lambda: typing.cast(Any, copy).copy(),
    "typing.cast()": lambda: typing.cast(Any, typing).cast(),
    "inspect.signature()": lambda: typing.cast(Any, inspect).signature(),
    "sys.exc_info(1)": lambda: typing.cast(Any, sys).exc_info(1),
    "torch.get_default_device(3)": lambda: typing.cast(Any, torch).get_default_device(3),
    "weakref.ref()": lambda: typing.cast(Any, weakref).ref(),
}


def outcome(form: Callable[[], Any], x: torch.Tensor) -> tuple[str, torch.Tensor]:
    """The error's class and text, caught in the program itself."""
    try:
        return repr(form()), x - 1
    except Exception as error:
        return f"{type(error).__name__}: {error}", x + 1


@pytest.mark.parametrize("name", REFUSED)
def test_what_c_code_refuses(name: str) -> None:
    with pytest.raises((TypeError, AttributeError)):
        REFUSED[name]()
    check(outcome, REFUSED[name], t(), skips=None)


NAMES = ("self", "vm", "fn", "obj", "owner", "args", "kwargs", "name", "value", "cls", "func", "key", "module", "error")
KEYWORDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a function": lambda named: taken(**named),
    "a generator": lambda named: next(generated(**named)),
    "a class": lambda named: Plain(**named).named,
    "a method": lambda named: Plain().method(**named),
    "an object": lambda named: Plain()(**named),
    "a partial": lambda named: functools.partial(taken, **named)(),
    "a partial as callback": lambda named: list(map(functools.partial(taken, **named), [1, 2])),
    "dict": lambda named: dict(**named),
    "dict.update": lambda named: (made := dict[str, Any](), made.update(**named)),
    "OrderedDict": lambda named: collections.OrderedDict(**named),
    "SimpleNamespace": lambda named: repr(types.SimpleNamespace(**named)),
    "str.format": lambda named: "".join("{%s}" % name for name in named).format(**named),
    "Template": lambda named: string.Template("".join(f"${name}" for name in named)).substitute(**named),
    "methodcaller": lambda named: operator.methodcaller("method", **named)(Plain()),
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_keyword_arguments_of_any_name(name: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        return KEYWORDS[name]({"self": 1, "vm": 2, "fn": 3}), KEYWORDS[name](dict.fromkeys(NAMES, 5)), x + 1

    check(fn, t(), skips=None)


def test_a_compiled_function_takes_any_keyword() -> None:
    compiled = compile_fn(taken)
    assert compiled(self=t(), error=1, fn=2)[1].keys() == {"self", "error", "fn"}


class Two:
    __match_args__ = ("a", "a")
    a = 1


class OfNone:
    __match_args__ = (None,)


class OfList:
    __match_args__ = ["a"]
    a = 1


def matched(value: Any) -> Any:
    match value:
        case Two(a, b):
            return a, b
        case OfNone(a):
            return a
        case OfList(a):
            return a


@pytest.mark.parametrize("kind", [Two, OfNone, OfList])
def test_match_args_that_python_refuses(kind: type) -> None:
    check(outcome, lambda: matched(kind()), t(), skips=None)


class OwnPartial(functools.partial[Any]):
    pass


class OwnError(Exception):
    pass


class OwnNumber(int):
    pass


@pytest.mark.parametrize("made", [functools.partial(taken, 1, a=2), OwnPartial(taken, 1, a=2)])
def test_a_copy_of_a_partial(made: Any) -> None:
    def fn(x: torch.Tensor) -> Any:
        new = functools.partial(taken, 3, b=x)
        return copy.copy(made)(), type(copy.copy(made)).__name__, copy.deepcopy(made)(), copy.copy(new)(), x + 1

    check(fn, t(), skips=None)


@pytest.mark.parametrize("made", [OwnError(1, 2), OwnNumber(3)])
def test_a_copy_of_what_c_code_makes(made: Any) -> None:
    check(lambda x: (repr(copy.copy(made)), x + 1), t(), skips=None)


def test_refused_calls_that_the_program_catches_are_no_breaks() -> None:
    def takes(a: Any, /, b: Any, *, c: Any = 1) -> Any:
        return a, b, c

    class Slots:
        __slots__ = ("held",)

    def fn(x: torch.Tensor) -> Any:
        answers = []
        for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"a": 2}), ((1, 2), {"d": 3}), ((1, 2), {"b": 3})):
            try:
                answers.append(takes(*args, **kwargs))  # type: ignore[arg-type]
            except TypeError as error:
                answers.append(str(error))
        made: Any = Slots()
        made.held = 1
        try:
            made.other = 2
        except AttributeError as error:
            answers.append(str(error))
        return x + 1, answers

    check(fn, t(), graphs=1, breaks=0)


def test_a_call_that_is_taken_later_was_refused_before() -> None:
    def takes(a: Any) -> Any:
        return a

    def fn(x: torch.Tensor) -> Any:
        try:
            return x + 1, takes()  # type: ignore[call-arg]
        except TypeError as error:
            return x + 2, str(error)

    def scenario(compile: Any) -> Any:
        called = compile(fn)
        before = called(t())
        takes.__defaults__ = (5,)
        try:
            return repr(before), called(t())
        finally:
            takes.__defaults__ = None

    check_scenario(scenario)


@functools.wraps(inspect.getsource)
def renamed(x: Any) -> Any:
    return x * 2


def test_a_module_that_a_decorator_has_copied_refuses_nothing() -> None:
    check(lambda x: renamed(x) + 1, t(3), graphs=1, breaks=0)
