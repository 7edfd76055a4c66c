"""Counters of compiling among a training run's own curves: for TensorBoard, wandb, and whatever logs numbers.

An extension: jitney tells it of each event, and it counts. ``log(writer, step)`` writes what is new.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from jitney import events
from jitney.backends import hookimpl

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1

_counts: Counter[str] = Counter()
_written: weakref.WeakKeyDictionary[Any, dict[str, float]] = weakref.WeakKeyDictionary()  # what each writer has got
_lock = threading.Lock()
_ROWS: dict[type, Callable[[Any], dict[str, float]]] = {
    events.FrameCaptured: lambda e: {"captures": 1, "graphs": int(e.graph is not None), "operations": e.op_count},
    events.FrameLoaded: lambda e: {"from_disk": 1},
    events.FrameSkipped: lambda e: {"left_eager": 1},
    events.GraphBreak: lambda e: {"graph_breaks": 1},
    events.GraphFailed: lambda e: {"graphs_failed": 1},
    events.Recompiled: lambda e: {"recompiles": 1},
    events.Phase: lambda e: {"compile_seconds": e.own},
}


@hookimpl
def jitney_observe(event: events.Event) -> None:
    """Count it."""
    row = _ROWS.get(type(event))
    if row is not None:
        with _lock:
            _counts.update(row(event))


def counts() -> dict[str, float]:
    """What has been counted in this process so far, by name."""
    with _lock:
        return dict(_counts)


def log(writer: Any, step: int | None = None, prefix: str = "jitney/") -> dict[str, float]:
    """Write the counters that have changed since the last time, all of them at first; what was written.

    Args:
        writer: a ``SummaryWriter`` of TensorBoard's (``add_scalar``), a run or the module of ``wandb`` (``log``), or a
            function of a dictionary and the step.
        step: of the training run.
        prefix: of each name.
    """
    now = counts()
    before = _written.setdefault(writer, {})
    new = {f"{prefix}{name}": value for name, value in now.items() if before.get(name) != value}
    before.update(now)
    if not new:
        return new
    if hasattr(writer, "add_scalar"):
        for name, value in new.items():
            writer.add_scalar(name, value, step)
    elif hasattr(writer, "log"):
        writer.log(new, step=step)
    else:
        writer(new, step)
    return new
