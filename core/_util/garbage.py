"""The garbage collector: it rests while a graph is compiled, and shows what a program has hidden from it."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator

from jitney._util.forks import reentrant_lock

_lock = reentrant_lock()
_blocks = Counter[int]()  # how many go on, by thread
_collects = False  # did it before the first of them?


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Run a block without collections; the last of several that overlap, in whatever threads, switches them on."""
    global _collects
    thread = threading.get_ident()
    with _lock:
        if not _blocks:
            _collects = gc.isenabled()
            gc.disable()
        _blocks[thread] += 1
    try:
        yield
    finally:
        with _lock:
            _end(thread, 1)


def _end(thread: int, blocks: int) -> None:
    _blocks[thread] -= blocks
    if not _blocks[thread]:
        del _blocks[thread]
    if not _blocks and _collects:
        gc.enable()


def _forget_other_threads() -> None:
    for thread, blocks in [*_blocks.items()]:
        if thread != threading.get_ident():
            _end(thread, blocks)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


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
