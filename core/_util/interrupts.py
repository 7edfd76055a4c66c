"""Ctrl-C while torch runs on tensors without data: it waits for a place where it does no harm.

C++ calls Python there, from destructors and functions that may not throw: a ``KeyboardInterrupt`` ends the process. In
``__enter__`` of a mode it leaves the mode on torch's stack, so that all that follows fails.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

# Number and frame of signals that wait: if there are any, whoever is at a harmless place calls ``deliver``.
waiting: list[tuple[int, FrameType | None]] = []


class Postponement:
    """A context in which Ctrl-C waits; at its end what waits is handled. Pressed again it does not wait.

    It may be entered again within. Only the main thread handles signals: in others it does nothing.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._handler: Any = None  # the one that was there
        self._thread = 0  # who has entered it

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if not self._depth:
            waiting.clear()
            found = signal.getsignal(signal.SIGINT)
            if found != self._wait:  # which somebody may have saved within such a context, and put back outside
                self._handler = found
            self._thread = threading.get_ident()
            try:
                if callable(self._handler):  # it is not ignored, and is one of Python's
                    signal.signal(signal.SIGINT, self._wait)
            except BaseException:  # pressed just now: nobody is within, so it has not waited
                self._put_back()
                raise
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if not self._depth:
            self._put_back()
            self.deliver()

    def leave_to_parent(self) -> None:
        """In a child that another thread has forked, which is its main thread now: nobody is within any more."""
        if self._depth and self._thread != threading.get_ident():
            self._depth = 0
            waiting.clear()
            self._put_back()

    def _put_back(self) -> None:
        if signal.getsignal(signal.SIGINT) == self._wait:
            signal.signal(signal.SIGINT, self._handler)

    def deliver(self) -> None:
        """Handle what waits as would have been done when it came."""
        if waiting and threading.current_thread() is threading.main_thread():
            number, frame = waiting[0]
            waiting.clear()
            self._handler(number, frame)

    def _wait(self, number: int, frame: FrameType | None) -> None:
        waiting.append((number, frame))
        if len(waiting) > 1 or not self._depth:
            self.deliver()


postponement = Postponement()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=postponement.leave_to_parent)
