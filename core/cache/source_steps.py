"""Steps of a source, taken before any guard was asked: only those that run nothing of the program's.

Guards are asked in an order: what a value is comes before what is read of it. A recipe that leads to an object reads
first, maybe of a value of another class, whose properties or ``__getitem__`` would do what eager does only once.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from jitney._util.ownership import trusted
from jitney.guards.source import STEPS

BY_NAME = {"dict_of": "__dict__", "class_dict": "__dict__", "values": "values"}
BY_CLASS = {"item": "__getitem__", "keys": "__iter__"}


def step(value: Any, kind: str, key: Any) -> Any:
    """What a step of this kind finds at a value.

    Raises:
        LookupError: code of the program's would run.
        Exception: what reading raises where there is no such thing.
    """
    if _enters(value, kind, key):
        raise LookupError(f"{kind} {key!r:.80} of a {type(value).__qualname__}, which has its own way to read it")
    return STEPS[kind](value, key)


def attribute(value: Any, name: str) -> Any:
    """The same of an attribute."""
    return step(value, "attr", name)


def _enters(value: Any, kind: str, key: Any) -> bool:
    if kind == "attr" or kind in BY_NAME:
        return _attribute_enters(value, BY_NAME.get(kind, key))
    if kind in ("item", "dict_item") and isinstance(value, dict) and _found(type(value), "__missing__") is not None:
        if not dict.__contains__(value, key):
            return True  # a defaultdict would get it now
    return kind in BY_CLASS and _foreign(_found(type(value), BY_CLASS[kind]))


def _attribute_enters(value: Any, name: str) -> bool:
    cls = type(value)
    if _foreign(_found(cls, "__getattribute__")):
        return True
    found = _found(cls, name)
    if isinstance(value, type):
        own = _found(value, name)
        if own is not None:
            return _foreign(_found(type(own), "__get__")) or _foreign(_found(type(found), "__get__"))
    space = _space(value)
    if name in space:
        if found is None or _found(type(found), "__set__") is None:
            return False
    elif found is None:
        if isinstance(value, types.ModuleType):
            return _foreign(space.get("__getattr__"))
        return _foreign(_found(cls, "__getattr__"))
    return _getter_enters(found)


def _getter_enters(found: Any) -> bool:
    """Does reading this of a class, or of its instances, run the program's code?"""
    if isinstance(found, property):
        return _foreign(found.fget)
    if isinstance(found, functools.cached_property):
        return _foreign(found.func)
    return _foreign(_found(type(found), "__get__"))


def _space(value: Any) -> Any:
    """Where an object has its own attributes."""
    try:
        return object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}


def _found(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _foreign(function: Any) -> bool:
    """Is it Python that the program has written?"""
    found: Callable[..., Any] | None = getattr(function, "__func__", function)
    return isinstance(found, types.FunctionType) and not trusted(found)
