"""What plugins share with the core, in names that stay: warnings on the user's line, functions made of text or late."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from jitney._util.callers import warn
from jitney._util.generated_code import build

__all__ = ["build", "late", "warn"]


def late(name: str) -> Callable[..., Any]:
    """A function that stands for another one.

    Args:
        name: ``"module:function"``. A backend whose ``compile`` is such a function costs a process that finds all its
            graphs on disk no import of what compiles.
    """
    module, _, attribute = name.partition(":")

    @functools.cache
    def found() -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return found()(*args, **kwargs)

    call.__module__, call.__name__ = module, attribute
    return call
