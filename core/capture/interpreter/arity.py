"""Does a C function take so many arguments, by these names? One that capture handles itself must be asked first."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Collection, Hashable
from typing import Any

from jitney.capture.interpreter.signals import Break

ANY = 1_000
# What has no signature: how many arguments by position, and whether any keyword may come with them.
COUNTS: dict[str, tuple[Collection[int], bool]] = {
    **dict.fromkeys(("next", "iter"), ((1, 2), False)),
    "getattr": ((2, 3), False),
    "vars": ((0, 1), False),
    "dir": ((0, 1), False),
    "type": ((1, 3), True),
    "super": ((0, 1, 2), False),
    "update": ((0, 1), True),
    **dict.fromkeys(
        ("__getitem__", "__contains__", "__format__", "reversed", "from_iterable", "cmp_to_key"), ((1,), False)
    ),
    **dict.fromkeys(("max", "min", "partial", "__new__", "fromkeys"), (range(1, ANY), True)),
    "filter": ((2,), False),
    "reduce": ((2, 3), False),
}
COUNTED = frozenset({filter, reversed, functools.partial, max, min, functools.reduce, functools.cmp_to_key})
METHODS = (types.BuiltinFunctionType, types.MethodWrapperType)


def refuse(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Break at a call that a C function would refuse: Python then refuses it, in its own words."""
    if not _takes(fn, args, kwargs):
        raise Break(f"{fn.__qualname__}() is called with arguments that it does not take")


def _takes(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    name = getattr(fn, "__name__", "")
    owner: Any = getattr(fn, "__self__", None) if isinstance(fn, METHODS) else None
    if name == "__new__" and not (args and isinstance(args[0], type)):
        return False
    at: Hashable = fn
    kind: Any = type(owner)
    if owner is None or isinstance(owner, types.ModuleType):
        known = _signature(at) if at not in COUNTED else None
    elif isinstance(owner, type):
        known = _signature(getattr(owner, name)) if owner.__module__ == "builtins" else None
    else:
        known = _of_method(kind, name)
    if known is None:
        counts, keywords = COUNTS.get(name, (None, True))
        return counts is None or (len(args) in counts and (keywords or not kwargs))
    try:
        known.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


@functools.cache
def _signature(fn: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


@functools.lru_cache(maxsize=1024)
def _of_method(cls: type, name: str) -> inspect.Signature | None:
    """As it is called when bound."""
    base = next((c for c in cls.__mro__ if c.__module__ in ("builtins", "collections") and name in vars(c)), None)
    found = _signature(vars(base)[name]) if base is not None else None
    if found is None or not found.parameters:
        return None
    return found.replace(parameters=list(found.parameters.values())[1:])
