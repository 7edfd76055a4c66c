"""Calls as they were written for torch's compilers, refused with the name that is right here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def named_in_errors(others: str = "", **keywords: str) -> Callable[[F], F]:
    """A call that the function does not take is a ``TypeError`` that says what to write.

    Args:
        others: about calls with any other arguments that it does not take.
        keywords: about calls with these keywords.
    """

    def decorate(fn: F) -> F:
        signature = inspect.signature(fn)

        @functools.wraps(fn)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                hint = next((keywords[k] for k in kwargs if k in keywords), others)
                text = f"jitney.{fn.__name__}: {error}"
                raise TypeError(f"{text}; {hint}" if hint else text) from None
            return fn(*args, **kwargs)

        return cast(F, checked)

    return decorate
