"""One process at a time measures; the others, which compile, leave it the processor."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence

from cores import bind

LATER = 10  # niceness of a process that compiles while others may measure time


class Exclusive:
    """What processes that measure on one machine share.

    Args:
        lock: a file's path: who holds it may measure; "" where there is one process only.
        measuring: the logical processors of the one that measures; none: any.
        others: those of the rest.
    """

    def __init__(self, lock: str, measuring: Sequence[int] = (), others: Sequence[int] = ()) -> None:
        self._lock, self._measuring, self._others = lock, measuring, others

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else measures meanwhile."""
        if not self._lock:
            yield
            return
        with open(self._lock, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            renice(0)
            bind(self._measuring)
            try:
                yield
            finally:
                self.give_way()

    def give_way(self) -> None:
        """From now on this process is one of those that compile."""
        if self._lock:
            renice(LATER)
            bind(self._others)


def renice(niceness: int) -> None:
    """The threads of this process get this niceness; those of one that may not raise its own stay as they are."""
    with contextlib.suppress(AttributeError, OSError):
        for thread in os.listdir("/proc/self/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), niceness)
