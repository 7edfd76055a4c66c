"""Cores of the machine: those on which time is measured are not those on which others compile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")


def siblings(processor: int) -> frozenset[int]:
    """The logical processors of the physical core that this one is of; itself alone where Linux does not tell."""
    try:
        text = (CPUS / f"cpu{processor}/topology/thread_siblings_list").read_text().strip()
        spans = [[int(end) for end in span.split("-")] for span in text.split(",")]
    except (OSError, ValueError):
        return frozenset((processor,))
    return frozenset(at for span in spans for at in range(span[0], span[-1] + 1))


def division(threads: int) -> tuple[list[int], list[int]]:
    """Logical processors that measure, one of each of ``threads`` physical cores, and all of the other cores.

    Two empty lists where no core is left for the others, or where processes cannot be bound to cores.
    """
    if not hasattr(os, "sched_getaffinity"):
        return [], []
    allowed = os.sched_getaffinity(0)
    physical = sorted({siblings(processor) & allowed for processor in allowed}, key=min)
    if not 0 < threads < len(physical):
        return [], []
    others = sorted(processor for core in physical[threads:] for processor in core)
    return [min(core) for core in physical[:threads]], others


def bind(processors: Collection[int]) -> None:
    """All threads of this process run there, and those that they start; nothing changes for an empty collection."""
    if processors:
        with contextlib.suppress(AttributeError, OSError):
            for thread in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(thread), processors)
