"""Locks in a child that ``fork`` has made: of the parent's threads it has one, and the others give nothing back."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def reentrant_lock() -> threading.RLock:
    """A ``threading.RLock`` that is free in a child, unless the thread that forked holds it.

    What it guards must be right whenever another thread is stopped for good: a program may be forked at any moment.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _renew() -> None:
    for lock in list(_locks):
        # What the forking thread holds it gives back itself: it goes on in the child where it was.
        if not lock._is_owned():
            lock._at_fork_reinit()  # as the standard library's own modules do


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
