"""One process at a time measures; the others, which compile, stand still."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

from cores import bind

LATER = 10  # niceness of a process that compiles while others may measure time


class Exclusive:
    """What processes that measure on one machine share.

    Args:
        lock: a file's path: who holds it may measure, while the processes that share it are stopped with all that they
            started; "" where there is one process only. Beside it lie ``LOCK.members``, a file for each process, and
            ``LOCK.stops``, a line for each time they were stopped.
        measuring: the logical processors of the one that measures; none: any.
        others: those of the rest.
    """

    def __init__(self, lock: str, measuring: Sequence[int] = (), others: Sequence[int] = ()) -> None:
        self._lock, self._measuring, self._others = lock, measuring, others
        if lock and os.getpgrp() == os.getpid():  # a group of its own can be stopped
            members(lock).mkdir(exist_ok=True)
            (members(lock) / str(os.getpid())).touch()
            with open(lock, "a") as file:
                fcntl.flock(file, fcntl.LOCK_SH)  # who comes while another measures begins afterwards

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else measures, or works at all, meanwhile."""
        if not self._lock:
            yield
            return
        with open(self._lock, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            renice(0)
            bind(self._measuring)
            begin = monotonic()
            signal_members(self._lock, signal.SIGSTOP)
            try:
                yield
            finally:
                try:
                    with open(f"{self._lock}.stops", "a") as stops:
                        stops.write(f"{begin} {monotonic()}\n")
                finally:
                    signal_members(self._lock, signal.SIGCONT)
                    self.give_way()

    def give_way(self) -> None:
        """From now on this process is one of those that compile."""
        if self._lock:
            renice(LATER)
            bind(self._others)

    def stopped(self, begin: float, end: float) -> float:
        """Seconds between two times of `time.monotonic` in which this process stood still: another measured."""
        try:
            lines = Path(f"{self._lock}.stops").read_text().splitlines() if self._lock else []
        except FileNotFoundError:
            return 0.0
        spans = [tuple(map(float, line.split())) for line in lines]
        return sum(max(0.0, min(end, stop) - max(begin, start)) for start, stop in spans)


def members(lock: str) -> Path:
    """The folder with a file for each process that shares the lock; its name is the process's number."""
    return Path(f"{lock}.members")


def signal_members(lock: str, number: signal.Signals) -> None:
    """Send it to the process groups of all others that share the lock; those that have ended are forgotten."""
    for member in members(lock).glob("*"):
        if member.name == str(os.getpid()):
            continue
        try:
            os.killpg(int(member.name), number)
        except ProcessLookupError:
            member.unlink(missing_ok=True)


def release(lock: str) -> None:
    """Let the others go on where the process that measured was killed; nothing happens while one measures."""
    with open(lock, "a") as file, contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        signal_members(lock, signal.SIGCONT)


def renice(niceness: int) -> None:
    """The threads of this process get this niceness; those of one that may not raise its own stay as they are."""
    with contextlib.suppress(AttributeError, OSError):
        for thread in os.listdir("/proc/self/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), niceness)
