"""Triton's coalescing pass, left out of long functions.

For each load and store the pass goes through all operations that are connected with it, and for each of these through
those before and after it: accesses times the square of operations, 0.2 microseconds each in Triton 3.6 and 3.7. Of a
function of 2,950 lines (SHA-256) that is 43 s of 49. Without the pass neighbours in a tile are neighbours among the
threads, and each loads one element at a time; a thread that computes so much waits for other things than memory.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

from triton._C.libtriton import passes

MOST = 10**7  # accesses times the square of lines: two seconds
ACCESS = re.compile(r"\btl\.(?:load|store|atomic_\w+)\(")


class _Left(threading.local):
    """Is the pass left out of what this thread compiles?"""

    out = False


_left = _Left()


def takes_too_long(body: str) -> bool:
    """Would the pass over a function with this body?"""
    return len(ACCESS.findall(body)) * body.count("\n") ** 2 > MOST


@contextlib.contextmanager
def left_out(out: bool) -> Iterator[None]:
    """What this thread compiles meanwhile is not coalesced, if ``out``."""
    before, _left.out = _left.out, out
    try:
        yield
    finally:
        _left.out = before


def _install() -> None:
    """Triton looks the pass up in this module each time."""
    known: Any = getattr(passes, "ttgpuir", None)
    add = getattr(known, "add_coalesce", None)
    if add is None:  # a Triton that does it otherwise
        return

    def add_coalesce(manager: Any) -> None:
        if not _left.out:
            add(manager)

    known.add_coalesce = add_coalesce


_install()
