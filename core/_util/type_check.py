"""Does a value fit a type annotation? For settings and options, which users type by hand."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin


def has_type(value: object, annotation: Any) -> bool:
    """True if ``value`` may be stored where ``annotation`` is declared.

    A bool is no int, an int is a float; containers are checked item by item; what is not understood
    (a protocol, a type variable) fits.
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return True
    if annotation is None:
        return value is None
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in args)
    if origin in (Union, types.UnionType):
        return any(has_type(value, arg) for arg in args)
    if isinstance(origin, type):
        return isinstance(value, origin) and _items_fit(value, args)
    if annotation is Callable:
        return callable(value)
    if annotation is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(annotation, type):
        return isinstance(value, annotation)
    return True


def _items_fit(value: Any, args: tuple[Any, ...]) -> bool:
    if isinstance(value, Mapping):
        return len(args) != 2 or all(has_type(k, args[0]) and has_type(v, args[1]) for k, v in value.items())
    if isinstance(value, tuple) and args and args[-1] is not Ellipsis:
        return len(value) == len(args) and all(map(has_type, value, args))
    if isinstance(value, (list, tuple, set, frozenset)) and args:
        return all(has_type(item, args[0]) for item in value)
    return True


def show(annotation: Any) -> str:
    """The annotation as a person would write it: ``int``, ``'a' | 'b'``, ``list[str]``."""
    if get_origin(annotation) is Literal:
        return " | ".join(map(repr, get_args(annotation)))
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
