"""``__context__``: what was being handled when an exception of captured code was raised.

What the caller of the compiled function handles (``outside``) is another exception in each call. Capture leaves it
out, though Python puts it in, and the emitted code puts in what is handled then.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

# Its own getter and setter: a class of the program's may have special methods for attributes.
CONTEXT: Any = vars(BaseException)["__context__"]


def raised(error: BaseException, handling: BaseException | None) -> None:
    """``raise error`` while ``handling`` is handled: a new context, and no circle."""
    if handling is None or handling is error:
        return
    for seen in _chain(handling):
        if CONTEXT.__get__(seen) is error:
            CONTEXT.__set__(seen, None)
    CONTEXT.__set__(error, handling)


def raised_by_c(error: BaseException, handling: BaseException | None, outside: BaseException | None) -> None:
    """C code has raised a new exception, which may have contexts of its own: ``handling`` goes behind these."""
    seen = error
    for seen in _chain(error):
        if seen is handling:
            return
        if CONTEXT.__get__(seen) is outside:
            break
    if outside is not None or handling is not None:
        CONTEXT.__set__(seen, handling)


def hand_on(error: BaseException) -> NoReturn:
    """Raise it for C code, which hands it on: its context stays, whatever is handled outside."""
    context = CONTEXT.__get__(error)
    try:
        raise error
    finally:
        CONTEXT.__set__(error, context)


def go_on_outside(error: BaseException) -> None:
    """In emitted code: the context of what captured code raised while it handled nothing itself."""
    CONTEXT.__set__(error, sys.exception())


def _chain(error: BaseException) -> list[BaseException]:
    """The exception, its context, the context of that and so on, each once."""
    found: dict[int, BaseException] = {}
    seen: BaseException | None = error
    while seen is not None and id(seen) not in found:
        found[id(seen)] = seen
        seen = CONTEXT.__get__(seen)
    return list(found.values())
