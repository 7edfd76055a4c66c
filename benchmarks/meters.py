"""Measures of the process and of the machine around it: other processes' load, peak memory."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from time import perf_counter

KIB = 1024
QUIET = 0.2  # cores that others may use before a round counts as disturbed


def busy_cpu_seconds() -> float | None:
    """Seconds that the cores open to this process have worked, all together, since the machine started.

    None where Linux does not tell.
    """
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        names = {f"cpu{processor}" for processor in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return None
    return sum(_worked(fields[1:]) for line in lines if (fields := line.split())[:1] and fields[0] in names)


def _worked(ticks: list[str]) -> float:
    """Seconds, of a line of /proc/stat."""
    user, nice, system, _idle, _waiting, *interrupts = map(int, ticks[:8])  # what guests take is in user and nice
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


class Stopwatch:
    """Wall-clock seconds since it was made, and how many cores other processes kept busy meanwhile."""

    def __init__(self) -> None:
        self._busy, self._own = busy_cpu_seconds(), sum(os.times()[:4])
        self._start = perf_counter()

    def read(self) -> tuple[float, float]:
        """(seconds, cores used by others); the second is 0 where nobody tells. Resolution: some 10 ms of work."""
        seconds = perf_counter() - self._start
        busy, own = busy_cpu_seconds(), sum(os.times()[:4])
        if busy is None or self._busy is None:
            return seconds, 0.0
        return seconds, max(0.0, (busy - self._busy - (own - self._own)) / seconds)


def peak_of_process() -> int:
    """The most bytes that this process ever held in memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * KIB


def forget_peak() -> bool:
    """Let `peak_of_process` start again from what is held now; False where the system has no such thing."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
