"""Does a C function take so many arguments, by these names? One that capture handles itself must be asked first."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Collection, Hashable
from typing import Any

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import HEAP_TYPE

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
# The same of methods, by the class in C that has them.
METHOD_COUNTS: dict[str, tuple[Collection[int], bool]] = {
    **{f"{kind}.{name}": ((0,), False) for kind in ("dict", "OrderedDict") for name in ("keys", "values", "items")},
    **{f"{kind}{name}": ((0, 1), True) for kind in ("dict", "OrderedDict") for name in ("", ".__init__", ".update")},
    **dict.fromkeys(("set", "set.__init__", "frozenset", "list.__init__"), ((0, 1), False)),
    **{f"{kind}.__getitem__": ((1,), False) for kind in ("dict", "list")},
    **{f"{kind}.{name}": ((1,), False) for kind in ("set", "frozenset") for name in ("__contains__", "add", "remove")},
    "set.discard": ((1,), False),
    "set.update": (range(ANY), False),
    **{f"deque.{name}": ((1,), False) for name in ("append", "appendleft", "extend", "extendleft", "count", "remove")},
    "deque.index": ((1, 2, 3), False),
    "deque.insert": ((2,), False),
    "str.format_map": ((1,), False),
}
COUNTED = frozenset({filter, reversed, functools.partial, max, min, functools.reduce, functools.cmp_to_key})
# Which argument is the name of an attribute: only text is one.
NAME_AT = {"getattr": 1, "hasattr": 1, "setattr": 1, "delattr": 1,
           "__getattribute__": 0, "__setattr__": 0, "__delattr__": 0}  # fmt: skip
OWN = ("builtins", "collections")
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
    qualified = METHOD_COUNTS.get(_name_in_c(fn, name))
    if qualified is not None:
        return len(args) in qualified[0] and (qualified[1] or not kwargs)
    at: Hashable = fn
    kind: Any = type(owner)
    if owner is None or isinstance(owner, types.ModuleType):
        known = _signature(at) if at not in COUNTED else None
    elif isinstance(owner, type) and not isinstance(fn, types.MethodWrapperType):
        known = _signature(getattr(owner, name)) if owner.__module__ in OWN else None
    else:
        known = _of_method(kind, name)
    if known is None and not (owner is None or isinstance(owner, types.ModuleType | type) or kind.__module__ in OWN):
        return True  # a method that happens to have such a name
    if known is None:
        counts, keywords = COUNTS.get(name, (None, True))
        return counts is None or (len(args) in counts and (keywords or not kwargs))
    try:
        known.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _name_in_c(fn: Any, name: str) -> str:
    """The name of C code with that of the class that has it: ``__qualname__`` has the class of the object."""
    owner = getattr(fn, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType):
        return name if isinstance(fn, type) or owner is not None else str(getattr(fn, "__qualname__", name))
    kind = owner if isinstance(owner, type) else type(owner)
    holder = next((c for c in kind.__mro__ if not c.__flags__ & HEAP_TYPE and name in vars(c)), None)
    return name if holder is None else f"{holder.__name__}.{name}"


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
    base = next((c for c in cls.__mro__ if c.__module__ in ("builtins", "collections") and name in vars(c)), None)
    found = _signature(vars(base)[name]) if base is not None else None
    if found is None or not found.parameters:
        return None
    return found.replace(parameters=list(found.parameters.values())[1:])
