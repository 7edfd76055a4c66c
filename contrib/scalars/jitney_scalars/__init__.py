"""Counters of compiling among a training run's own curves: for TensorBoard, wandb, and whatever logs numbers.

An extension: jitney tells it of each event, and it counts. ``log(writer, step)`` writes what is new.
"""

from __future__ import annotations

import threading
import types
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from jitney import events
from jitney.backends import hookimpl

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1

_counts: Counter[str] = Counter()
# What each writer has got, for each of its methods and each prefix. By identity: writers may compare as they like, and
# those that have no weak references are kept.
_written: dict[int, tuple[Any, dict[tuple[Any, str], dict[str, float]]]] = {}
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
    """Write the counters that have changed since this writer last got them, all of them at first; what was written.

    What the writer raises is raised; the numbers that it did not take are written the next time.

    Args:
        writer: a ``SummaryWriter`` of TensorBoard's (``add_scalar``), a run or the module of ``wandb`` (``log``), or a
            function or method of a dictionary and the step (the same each time: a new one is given all of them).
        step: of the training run.
        prefix: of each name.
    """
    before = _got(writer, prefix)
    new = {name: value for name, value in counts().items() if before.get(name) != value}
    written = {f"{prefix}{name}": value for name, value in new.items()}
    if not new:
        return written
    if hasattr(writer, "add_scalar"):
        for name, value in new.items():
            writer.add_scalar(f"{prefix}{name}", value, step)
            before[name] = value
    elif hasattr(writer, "log"):
        writer.log(written, step=step)
    else:
        writer(written, step)
    before.update(new)
    return written


def _got(writer: Any, prefix: str) -> dict[str, float]:
    """What it has got under this prefix. A bound method is made anew each time: its object is what lasts."""
    bound = isinstance(writer, types.MethodType)
    owner, function = (writer.__self__, writer.__func__) if bound else (writer, None)
    number = id(owner)
    if number not in _written:
        try:
            kept: Any = weakref.ref(owner, lambda _: _written.pop(number, None))
        except TypeError:
            kept = owner
        _written[number] = (kept, {})
    return _written[number][1].setdefault((function, prefix), {})
