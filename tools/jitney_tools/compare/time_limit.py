"""A time limit for a block of code: what hangs in Python is stopped, what hangs in C is not."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

# Seconds after which a limit goes off again: Python drops what is raised in a weak reference's callback or a `__del__`.
AGAIN = 1.0


class TimeLimit(BaseException):
    """A block took longer than it may. No ``Exception``: what it stops shall not go on by catching it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TimeLimit`` in the block if it takes longer.

    Only in the main thread, and only where there are timers that interrupt (not on Windows): else there is no limit.
    A limit around this one, or a timer of the program's own, goes on counting, and is put back with its interval; it
    does not go off within the block, but at once afterwards.
    """
    usable = seconds > 0 and hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeLimit(f"it took longer than {seconds:g} s")

    begin = time.monotonic()
    before = signal.signal(signal.SIGALRM, stop)
    outer, interval = signal.setitimer(signal.ITIMER_REAL, seconds, max(seconds, AGAIN))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer:
            signal.setitimer(signal.ITIMER_REAL, max(outer - (time.monotonic() - begin), 1e-3), interval)
