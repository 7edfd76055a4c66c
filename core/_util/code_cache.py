"""What was found out about code objects: kept while the program's functions are.

A notebook defines its functions anew each time that a cell runs. So what is known of code that is neither Python's,
torch's nor ours is dropped when a compiled function has gone and another is made: what is there is looked at again.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any, Concatenate, ParamSpec, TypeVar

from jitney._util.forks import reentrant_lock
from jitney._util.ownership import trusted_file

P = ParamSpec("P")
T = TypeVar("T")
Keyed = Callable[Concatenate[CodeType, P], T]

_caches: list[dict[Any, Any]] = []  # whose keys begin with the file and the code
_lock = reentrant_lock()
_MISSING: Any = object()
_stale = threading.Event()  # has a compiled function gone?


def cached_by_code(maxsize: int) -> Callable[[Keyed[P, T]], Keyed[P, T]]:
    """Remember the results of a function of a code object and more: equal code of two files is told apart here."""

    def decorate(function: Keyed[P, T]) -> Keyed[P, T]:
        known: dict[Any, Any] = {}
        _caches.append(known)

        @functools.wraps(function)
        def call(code: CodeType, *args: P.args, **kwargs: P.kwargs) -> T:
            key = (code.co_filename, code, args, *kwargs.items())
            found: T = known.get(key, _MISSING)
            if found is not _MISSING:
                return found
            found = function(code, *args, **kwargs)
            with _lock:
                known[key] = found
                if len(known) > maxsize:
                    del known[next(iter(known))]
            return found

        return call

    return decorate


def drop_when_gone(compiled: object) -> None:
    """Once this compiled function has gone, ``drop_gone`` does something."""
    weakref.finalize(compiled, _stale.set).atexit = False


def drop_gone() -> None:
    """Let go of the program's code, if a compiled function has gone since the last time."""
    if _stale.is_set():
        _stale.clear()
        with _lock:
            for known in _caches:
                for key in [key for key in known if not trusted_file(key[0])]:
                    del known[key]
