"""Does a C function take so many arguments, by these names? One that capture handles itself must be asked first."""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from collections import OrderedDict, deque
from collections.abc import Collection, Hashable
from typing import Any

from jitney._util.ownership import IMMUTABLE
from jitney.capture.interpreter.signals import Break

ANY = 1_000
Counts = tuple[Collection[int], bool]  # how many arguments by position, and whether any keyword may come with them


def _methods(classes: tuple[type, ...], names: str, counts: Counts) -> dict[Hashable, Counts]:
    return {(cls, name): counts for cls in classes for name in names.split()}


# What has no signature, or none in some version: functions and classes, methods by the class in C that has them.
COUNTS: dict[Hashable, Counts] = {
    **dict.fromkeys((next, iter), ((1, 2), False)),
    **dict.fromkeys((max, min, functools.partial), (range(1, ANY), True)),
    **dict.fromkeys((reversed, functools.cmp_to_key), ((1,), False)),
    **dict.fromkeys((getattr, functools.reduce), ((2, 3), False)),
    **dict.fromkeys((vars, dir, set, frozenset), ((0, 1), False)),
    **dict.fromkeys((dict, OrderedDict), ((0, 1), True)),
    filter: ((2,), False),
    type: ((1, 3), True),
    super: ((0, 1, 2), False),
    **_methods((dict, OrderedDict), "keys values items", ((0,), False)),
    **_methods((dict, OrderedDict), "__init__ update", ((0, 1), True)),
    **_methods((set, list), "__init__", ((0, 1), False)),
    **_methods((dict, list), "__getitem__", ((1,), False)),
    **_methods((set, frozenset), "__contains__", ((1,), False)),
    **_methods((set,), "add remove discard", ((1,), False)),
    **_methods((set,), "update", (range(ANY), False)),
    **_methods((deque,), "append appendleft extend extendleft count remove", ((1,), False)),
    **_methods((deque,), "index", ((1, 2, 3), False)),
    **_methods((deque,), "insert", ((2,), False)),
    **_methods((str,), "format_map", ((1,), False)),
    **_methods((itertools.chain,), "from_iterable", ((1,), False)),
}
# Which argument is the name of an attribute: only text is one.
NAME_AT = {"getattr": 1, "hasattr": 1, "setattr": 1, "delattr": 1,
           "__getattribute__": 0, "__setattr__": 0, "__delattr__": 0}  # fmt: skip
KNOWN_MODULES = ("builtins", "collections")  # a method of their classes has the signature that it has there
METHODS = (types.BuiltinFunctionType, types.MethodWrapperType)


def check(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Break at a call that C code would refuse: it then refuses it itself, in its own words.

    It is not called here: where a row of these tables is wrong, the call would be done, and done again after the break.
    """
    if not _takes(fn, args, kwargs):
        raise Break(f"{fn.__qualname__}() is called with arguments that it does not take")


def _takes(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    name = getattr(fn, "__name__", "")
    owner: Any = getattr(fn, "__self__", None) if isinstance(fn, METHODS) else None
    if name == "__new__" and not (args and isinstance(args[0], type) and _may_make(owner, args[0])):
        return False
    at_name = NAME_AT.get(name)
    if at_name is not None and len(args) > at_name and not isinstance(args[at_name], str):
        return False
    if isinstance(fn, METHODS) and owner is None:  # bound to None, which ``inspect`` takes for not bound
        return True
    is_function = owner is None or isinstance(owner, types.ModuleType)
    kind: type = owner if isinstance(owner, type) else type(owner)
    holder = next((c for c in kind.__mro__ if c.__flags__ & IMMUTABLE and name in vars(c)), kind)
    counts = COUNTS.get(fn if is_function else (holder, name))
    if counts is not None:
        return len(args) in counts[0] and (counts[1] or not kwargs)
    if is_function:
        known = _signature(fn)
    elif isinstance(owner, type) and not isinstance(fn, types.MethodWrapperType):
        known = _signature(getattr(holder, name)) if holder.__module__ in KNOWN_MODULES else None
    else:
        known = _of_method(kind, name)
    if known is None:
        return True
    try:
        known.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _may_make(owner: Any, cls: type) -> bool:
    """C code makes instances of its own class and of subclasses."""
    return not isinstance(owner, type) or issubclass(cls, owner)


@functools.cache
def _signature(fn: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


@functools.lru_cache(maxsize=1024)
def _of_method(cls: type, name: str) -> inspect.Signature | None:
    """As it is called when bound."""
    base = next((c for c in cls.__mro__ if c.__module__ in KNOWN_MODULES and name in vars(c)), None)
    found = _signature(vars(base)[name]) if base is not None else None
    if found is None or not found.parameters:
        return None
    return found.replace(parameters=list(found.parameters.values())[1:])
