"""The garbage collector, while a graph is compiled: its objects stay, and would be walked again and again."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_blocks = 0  # how many go on, in all threads
_collects = False  # did it before the first of them?


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Run a block without collections; the last of several that overlap, in whatever threads, switches them on."""
    global _blocks, _collects
    with _lock:
        if not _blocks:
            _collects = gc.isenabled()
            gc.disable()
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks and _collects:
                gc.enable()
