"""The garbage collector: it rests while a graph is compiled, and shows what a program has hidden from it."""

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


@contextlib.contextmanager
def without_freeze() -> Iterator[None]:
    """Run a block that sees all objects, also those that the program has hidden from collections by ``gc.freeze()``.

    They are hidden again afterwards, and so is what was made since then.
    """
    frozen = gc.get_freeze_count() > 0
    if frozen:
        gc.unfreeze()
    try:
        yield
    finally:
        if frozen:
            gc.freeze()
