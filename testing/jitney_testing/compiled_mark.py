"""What ``compiled`` means to the program that runs: nothing in eager, ``jitney.compile`` on the other side."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

from jitney.api import compile as compile_function

Wrap = Callable[[Any], Any]
_wrap: contextvars.ContextVar[Wrap | None] = contextvars.ContextVar("what compiled does", default=None)


def compiled(function: Any = None, **options: Any) -> Any:
    """Marks what a program has compiled; as a decorator, with ``jitney.compile``'s options in parentheses if need be.

    Eager's side gets the function itself.
    """
    if function is None:
        return lambda given: compiled(given, **options)
    wrap = _wrap.get()
    return function if wrap is None else wrap((function, options))


@contextlib.contextmanager
def compiles_for(backend: Any, **options: Any) -> Iterator[None]:
    """``compiled`` compiles for this backend while the block runs."""
    token = _wrap.set(lambda given: compile_function(given[0], backend=backend, **{**options, **given[1]}))
    try:
        yield
    finally:
        _wrap.reset(token)
