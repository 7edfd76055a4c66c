"""Ctrl-C while torch runs on tensors without data: it waits for a place where it does no harm.

C++ calls Python there, from destructors and functions that may not throw: a ``KeyboardInterrupt`` ends the process. In
``__enter__`` of a mode it leaves the mode on torch's stack, so that all that follows fails.
"""

from __future__ import annotations

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

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if not self._depth:
            waiting.clear()
            found = signal.getsignal(signal.SIGINT)
            if found != self._wait:  # which somebody may have saved within such a context, and put back outside
                self._handler = found
            if callable(self._handler):  # it is not ignored, and is one of Python's
                signal.signal(signal.SIGINT, self._wait)
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if not self._depth:
            if signal.getsignal(signal.SIGINT) == self._wait:
                signal.signal(signal.SIGINT, self._handler)
            self.deliver()

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
