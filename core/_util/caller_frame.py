"""A frame of the user's line, from which torch's functions are called: what warns names its caller by the stack."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

QUALNAME = "<the line that calls>"  # of the code of such frames: it is not the program's
_CODE: types.CodeType = (lambda func, args, kwargs: func(*args, **kwargs)).__code__


def call_here(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same from nowhere in the program."""
    return func(*args, **kwargs)


def calls_from(filename: str, line: int, namespace: dict[str, Any]) -> Callable[..., Any]:
    """``func(*args, **kwargs)`` for ``(func, args, kwargs)``, from this line of code with these globals."""
    code = _CODE.replace(co_filename=filename, co_firstlineno=line, co_name=QUALNAME, co_qualname=QUALNAME)
    return types.FunctionType(code, namespace)
