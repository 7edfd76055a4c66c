"""Where compile time went: each phase's calls and seconds since the process started."""

from __future__ import annotations

import collections
import itertools
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jitney import events
from jitney.errors import InvalidOption
from jitney.torch_compat.markers import Span

By = Literal["phase", "frame", "graph"]
MOST = 100_000  # phases kept for a trace; sums are of all


@dataclass
class PhaseTime:
    """What one phase cost so far.

    Args:
        calls: how often.
        seconds: from begin to end; a phase inside another counts in both.
        own: without the phases inside; these add up to the whole.
    """

    calls: int = 0
    seconds: float = 0.0
    own: float = 0.0


_times: dict[str, PhaseTime] = {}
_frames: dict[str, dict[str, float]] = {}  # function -> phase -> own seconds
_graphs: dict[tuple[int, str], dict[str, float]] = {}  # number and function -> phase -> own seconds
_last: collections.deque[tuple[events.Phase, int]] = collections.deque(maxlen=MOST)


def _collect(event: events.Event) -> None:
    if not isinstance(event, events.Phase):
        return
    entry = _times.setdefault(event.name, PhaseTime())
    entry.calls += 1
    entry.seconds += event.seconds
    entry.own += event.own
    number = events.subject()
    for sums in (_frames.setdefault(event.frame, {}), _graphs.setdefault((number, event.frame), {})):
        sums[event.name] = sums.get(event.name, 0.0) + event.own
    for known in (_frames, _graphs):
        if len(known) > MOST:
            known.pop(next(iter(known)), None)  # type: ignore[call-overload]
    _last.append((event, number))


events.subscribe(_collect)


def compile_times(by: By = "phase") -> str:
    """A table, the most expensive first.

    Args:
        by: ``phase``: name, calls, seconds in all. ``frame``: for each function the seconds of its phases. ``graph``:
            the same for each captured graph by its number.

    Raises:
        InvalidOption: another ``by``.
    """
    if by not in ("phase", "frame", "graph"):
        raise InvalidOption(f"compile_times by {by!r}", hint="by='phase', 'frame' or 'graph'", phase="times")
    if not _times:
        return "nothing was compiled yet"
    if by == "phase":
        rows = sorted(_times.items(), key=lambda item: -item[1].seconds)
        return _table("phase", [(name, f"{t.calls:>7}  {t.seconds:>9.4f}") for name, t in rows], "  calls    seconds")
    sums = _frames if by == "frame" else {f"{number} {name}": own for (number, name), own in _graphs.items()}
    ranked = sorted(sums.items(), key=lambda item: -sum(item[1].values()))
    return _table(
        by, [(name, f"{sum(own.values()):>9.4f}  {_parts(own)}") for name, own in ranked], "  seconds  of these"
    )


def _parts(own: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.4f}" for name, seconds in sorted(own.items(), key=lambda item: -item[1]))


def _table(head: str, rows: Iterable[tuple[str, str]], columns: str) -> str:
    listed = list(rows)
    width = max(len(head), *(len(name) for name, _ in listed))
    return "\n".join([f"{head:<{width}}  {columns}", *(f"{name:<{width}}  {text}" for name, text in listed)])


def reset_compile_times() -> None:
    """Forget the times collected so far."""
    for known in (_times, _frames, _graphs):
        known.clear()
    _last.clear()


def write_trace(path: str | os.PathLike[str], spans: Iterable[Span] = ()) -> Path:
    """Write the phases of compiling as a Chrome trace, for chrome://tracing or ui.perfetto.dev.

    Args:
        path: of the JSON file.
        spans: what ``jitney.torch_compat.markers.collecting`` found while compiled code ran, to be in it too.

    Returns the path.
    """
    phases = ((p.name, "compile", p.frame, number, p.begin, p.seconds, p.thread) for p, number in list(_last))
    runs = ((s.name, s.kind, s.detail, s.number, s.begin, s.end - s.begin, s.thread) for s in spans)
    rows = sorted(itertools.chain(phases, runs), key=lambda row: row[4])
    zero = rows[0][4] if rows else 0.0
    file = Path(path)
    file.write_text(json.dumps({"traceEvents": [_traced(*row, zero) for row in rows], "displayTimeUnit": "ms"}))
    return file


def _traced(
    name: str, kind: str, frame: str, number: int, begin: float, seconds: float, thread: int, zero: float
) -> dict[str, Any]:
    place = {"ph": "X", "ts": (begin - zero) * 1e6, "dur": seconds * 1e6, "pid": os.getpid(), "tid": thread}
    about = f"{name} {frame}" if kind == "compile" else name
    return {"name": about, "cat": kind, "args": {"graph": number, "of": frame}, **place}
