"""What CPython's own code puts into the errors of attributes: names of classes as C has them, ``name`` and ``obj``."""

from __future__ import annotations

from typing import Any

from jitney.capture.kinds import HEAP_TYPE

# Their own getters and setters: a class of the program's may have special methods for attributes.
NAME: Any = vars(AttributeError)["name"]
OBJ: Any = vars(AttributeError)["obj"]


def name_in_c(kind: type) -> str:
    """``tp_name``, by which messages call a class: that of a class written in C may have its module in it."""
    in_module = not kind.__flags__ & HEAP_TYPE and kind.__module__ != "builtins"
    return f"{kind.__module__}.{kind.__name__}" if in_module else kind.__name__


def lacking(obj: Any, name: str) -> AttributeError:
    """The error where an object has no such attribute."""
    return AttributeError(f"{name_in_c(type(obj))!r} object has no attribute {name!r}")


def complete(error: AttributeError, obj: Any, name: str) -> None:
    """Say what was looked for, as Python does with what methods raise that do not."""
    if NAME.__get__(error) is None is OBJ.__get__(error):
        NAME.__set__(error, name)
        OBJ.__set__(error, obj)
