"""The records of a debug folder, sorted by what they are about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jitney.errors import JitneyError
from jitney_tools.debug_folder.event_log import FORMAT, Record, read
from jitney_tools.drawing.rows import Row

Place = tuple[str, int]  # file and line


@dataclass
class Frame:
    """One captured frame, and all that came of it.

    Args:
        number: see ``events.subject``.
        name, file, line: the user's function.
        captured: the record of ``FrameCaptured``; empty if it did not come to that.
        graphs: title -> rows, in order: captured, transformed, joint, forward...
        schedules: records of ``Scheduled``.
        artefacts: records of ``Artefact``.
        phases: records of ``Phase``.
        cause: the record of the ``Recompiled`` that made it necessary.
        kept: why a graph runs operator by operator; empty if none does.
    """

    number: int
    name: str = ""
    file: str = ""
    line: int = 0
    captured: Record = field(default_factory=dict)
    graphs: dict[str, list[Row]] = field(default_factory=dict)
    schedules: list[Record] = field(default_factory=list)
    artefacts: list[Record] = field(default_factory=list)
    phases: list[Record] = field(default_factory=list)
    cause: Record | None = None
    kept: str = ""

    @property
    def stop(self) -> Record | None:
        """The graph break that ended it."""
        found: Record | None = self.captured.get("graph_break")
        return found

    @property
    def operations(self) -> int:
        """In the captured graph."""
        return int(self.captured.get("op_count", 0))

    @property
    def seconds(self) -> float:
        """Spent on it in all phases."""
        return float(sum(phase["own"] for phase in self.phases))

    @property
    def kernels(self) -> int:
        """In all its graphs."""
        return sum(launch["kind"] == "kernel" for made in self.schedules for launch in made["launches"])


@dataclass
class Run:
    """A debug folder.

    Args:
        path: the folder.
        frames: by number, in order.
        sources: the user's files.
        skipped: records of frames left eager.
        limits: records of ``LimitReached``.
        failed: records of ``GraphFailed``.
        phases: all, in order of their end.
        measured: records of ``Measured``, by frame's number, kind of graph and name.
        hints: what keeps it from being fast, each once, in order.
    """

    path: Path
    frames: dict[int, Frame] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    skipped: list[Record] = field(default_factory=list)
    limits: list[Record] = field(default_factory=list)
    failed: list[Record] = field(default_factory=list)
    phases: list[Record] = field(default_factory=list)
    measured: dict[tuple[int, str, str], Record] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)

    def place(self, stack: list[Record]) -> Place | None:
        """The innermost frame of a stack that is in a file of the user's."""
        own = [frame for frame in stack if frame["file"] in self.sources]
        return (own[-1]["file"], own[-1]["line"]) if own else None


def load(path: Path) -> Run:
    """Read a debug folder.

    Raises:
        JitneyError: it is none, or of another version.
    """
    run = Run(path)
    try:
        records = list(read(path))
    except OSError as error:
        hint = "JITNEY_COMPILE_DEBUG=1 python ... writes one, and says where"
        raise JitneyError(f"{path} is no debug folder: {error.strerror}", hint=hint, phase="report") from error
    if not records or records[0].get("format") != FORMAT:
        raise JitneyError(f"{path} was written by another version of jitney", phase="report")
    for own in records:
        handle = _HANDLERS.get(own["event"])
        if handle is not None:
            handle(run, own)
        for hint in own.get("hints", ()):
            run.hints[hint] = run.hints.get(hint, 0) + 1
    return run


def _frame(run: Run, own: Record) -> Frame:
    frame = run.frames.setdefault(own["number"], Frame(own["number"]))
    if not frame.name:
        frame.name = str(own["name"] if "filename" in own else own.get("frame", ""))
        frame.file, frame.line = own.get("filename", ""), own.get("line", 0)
    elif not frame.file and "filename" in own:
        frame.file, frame.line = own["filename"], own["line"]
    return frame


def _rows(plain: list[Any]) -> list[Row]:
    return [Row.of(row) for row in plain]


def _add_graph(frame: Frame, title: str, plain: list[Any]) -> None:
    unique, count = title, 1
    while unique in frame.graphs:
        count += 1
        unique = f"{title} {count}"
    frame.graphs[unique] = _rows(plain)


def _captured(run: Run, own: Record) -> None:
    _frame(run, own).captured = own


def _graph(run: Run, own: Record) -> None:
    _add_graph(_frame(run, own), "after extensions" if own["transformed"] else "captured", own["graph"])


def _aten(run: Run, own: Record) -> None:
    _add_graph(_frame(run, own), own["kind"], own["graph"])


def _scheduled(run: Run, own: Record) -> None:
    _frame(run, own).schedules.append(own)


def _artefact(run: Run, own: Record) -> None:
    _frame(run, own).artefacts.append(own)


def _phase(run: Run, own: Record) -> None:
    run.phases.append(own)
    if own["number"]:
        _frame(run, own).phases.append(own)


def _recompiled(run: Run, own: Record) -> None:
    _frame(run, own).cause = own


def _kept(run: Run, own: Record) -> None:
    _frame(run, own).kept = own["reason"]


def _source(run: Run, own: Record) -> None:
    run.sources[own["file"]] = own["text"]


def _measured(run: Run, own: Record) -> None:
    run.measured[own["number"], own["graph"], own["name"]] = own


_HANDLERS: dict[str, Callable[[Run, Record], None]] = {
    "FrameCaptured": _captured,
    "GraphCaptured": _graph,
    "AtenGraph": _aten,
    "Scheduled": _scheduled,
    "Artefact": _artefact,
    "Phase": _phase,
    "Recompiled": _recompiled,
    "GraphKept": _kept,
    "Source": _source,
    "Measured": _measured,
    "FrameSkipped": lambda run, own: run.skipped.append(own),
    "LimitReached": lambda run, own: run.limits.append(own),
    "GraphFailed": lambda run, own: run.failed.append(own),
}
