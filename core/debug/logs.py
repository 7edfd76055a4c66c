"""Logs by artefact, on top of ``logging``: ``JITNEY_LOGS="capture,+guards"`` or ``set_logs("capture,+guards")``.

Each artefact is the logger ``jitney.<artefact>``: a name shows it (INFO), ``+name`` more of it (DEBUG), ``-name``
nothing of it, which is for what ``all`` has turned on: ``JITNEY_LOGS="all,-guards"``.
"""

from __future__ import annotations

import dis
import io
import logging
from collections.abc import Callable, Mapping
from typing import TextIO

from torch.fx import GraphModule

from jitney import events
from jitney._util.callers import warn
from jitney.config import config
from jitney.debug.hints import hints
from jitney.debug.text import describe_counts, describe_launch, readable
from jitney.errors import InvalidOption, describe_frame, nearest

ARTEFACTS = {
    "steps": "each of the steps 1 capture, 2 aot, 3 backend as it begins and as it ends",
    "capture": "one line per frame: captured or left eager; +capture: its operations",
    "bytecode": "the Python source of the function emitted for a frame; +bytecode: its bytecode too",
    "graph": "the nodes of each graph",
    "graph_code": "each graph as Python source",
    "graph_breaks": "each graph break with its reason; +graph_breaks: with the whole user stack",
    "aot_graphs": "the functional ATen graphs of forward and backward; +aot_graphs: the joint graph too",
    "guards": "the guards of each frame; +guards: with the emitted source that checks them",
    "recompiles": "each recompile, with the guard that failed",
    "cache": "each frame that was loaded from disk or kept there, or why not",
    "fusion": "what each kernel computes, with its bytes, and what runs as a whole; +fusion: the loops too",
    "output_code": "what backends generated",
    "perf_hints": "what keeps the program from being fast: breaks, recompiles, operators without a kernel",
    "timing": "each phase as it ends; +timing: without the phases within it",
}

ALL = "all"
DETAILED = ("fusion", "output_code")  # what is only told if somebody wants it

Logs = Mapping[str, logging.Logger]

_root = logging.getLogger("jitney")
_logs = {name: logging.getLogger(f"jitney.{name}") for name in ARTEFACTS}
_handler: logging.Handler | None = None
_subscribed = False
_wants_details = False


def set_logs(spec: str = "", *, stream: TextIO | None = None, **artefacts: bool | int) -> None:
    """Choose what is logged; replaces the choice before.

    Args:
        spec: comma-separated artefacts, each with an optional ``+`` for more or ``-`` for nothing; ``all`` is every
            artefact. What comes later in the list counts. Empty: nothing.
        stream: where to write, stderr by default.
        artefacts: the same by keyword, ``set_logs(guards=logging.DEBUG, recompiles=True)``.

    Raises:
        InvalidOption: an artefact that does not exist.
    """
    global _handler, _subscribed, _wants_details
    levels = _parse(spec)
    for name, level in artefacts.items():
        _check(name)
        levels[name] = (logging.INFO if level else logging.WARNING) if isinstance(level, bool) else level
    if _handler is not None:
        _root.removeHandler(_handler)
        _handler = None
    for name, log in _logs.items():
        log.setLevel(levels.get(name, logging.NOTSET))
    wants_details = any(levels.get(name, logging.WARNING) < logging.WARNING for name in DETAILED)
    if wants_details is not _wants_details:
        _wants_details = wants_details
        events.want_details(wants_details)
    # With a handler of ours a record is written once; without, the application's own logging decides.
    _root.propagate = not levels
    if not levels:
        return
    _handler = logging.StreamHandler(stream)
    _handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
    _root.addHandler(_handler)
    if not _subscribed:
        events.subscribe(_write)
        _subscribed = True


_LEVELS = {"": logging.INFO, "+": logging.DEBUG, "-": logging.WARNING}


def _parse(spec: str) -> dict[str, int]:
    levels: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in spec.split(","))):
        sign = part[0] if part[0] in "+-" else ""
        name = part.removeprefix(sign)
        if name != ALL:
            _check(name)
        level = _LEVELS[sign]
        levels |= dict.fromkeys(ARTEFACTS if name == ALL else [name], level)
    return levels


def _check(name: str) -> None:
    if name not in ARTEFACTS:
        hint = nearest(name, (*ARTEFACTS, ALL)) or f"one of {', '.join(ARTEFACTS)}"
        raise InvalidOption(f"there is no log artefact {name!r}", hint=hint, phase="logs")


def _write(event: events.Event) -> None:
    write_to(event, _logs)


def write_to(event: events.Event, logs: Logs) -> None:
    """Write an event to these loggers, one for each artefact."""
    writer = _WRITERS.get(type(event))
    if writer is not None:
        writer(event, logs)
    if logs["perf_hints"].isEnabledFor(logging.INFO):
        for hint in hints(event):
            logs["perf_hints"].info("%s", hint)


def loggers_to(stream: TextIO) -> Logs:
    """Loggers of their own for every artefact, which write all there is to a stream, whatever ``set_logs`` says."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s [%(name)s] %(message)s"))
    made = {}
    for name in ARTEFACTS:
        # Disassembling long functions takes longer than compiling them.
        made[name] = logging.Logger(f"jitney.{name}", logging.INFO if name == "bytecode" else logging.DEBUG)
        made[name].addHandler(handler)
    return made


def _captured(event: events.FrameCaptured, logs: Logs) -> None:
    place = f"{event.name} ({event.filename}:{event.line})"
    resumed = "resumed " if event.resumed else ""
    logs["capture"].info("captured %s%s: %d ops, %.3f s", resumed, place, event.op_count, event.seconds)
    if event.graph is not None:
        _graph(event.graph, place, logs)
    logs["bytecode"].info("emitted for %s:\n%s", place, event.source)
    if logs["bytecode"].isEnabledFor(logging.DEBUG):
        text = io.StringIO()
        dis.dis(event.source, file=text)
        logs["bytecode"].debug("bytecode of %s:\n%s", place, text.getvalue())
    if event.guards:
        logs["guards"].info("guards of %s:\n%s", place, "\n".join(f"  {guard}" for guard in event.guards))
        logs["guards"].debug("checked by:\n%s", event.source)
    if event.graph_break is not None:
        _graph_break(event.graph_break, logs)


def _graph(graph: GraphModule, place: str, logs: Logs) -> None:
    logs["capture"].debug("operations of %s: %s", place, graph.graph)
    logs["graph"].info("graph of %s:\n%s", place, graph.graph)
    logs["graph_code"].info("graph of %s:\n%s", place, graph.code)


def _graph_break(event: events.GraphBreak, logs: Logs) -> None:
    place = describe_frame(event.user_stack[-1]) if event.user_stack else "(no user frame)"
    hint = f"\n  try: {event.hint}" if event.hint else ""
    logs["graph_breaks"].info("graph break at %s\n  %s%s", place, event.reason, hint)
    stack = "\n".join(f"  {describe_frame(frame)}" for frame in event.user_stack)
    logs["graph_breaks"].debug("user stack:\n%s", stack)


def _skipped(event: events.FrameSkipped, logs: Logs) -> None:
    message = "%s (%s:%d) runs eagerly: %s"
    for name in ("capture", "graph_breaks"):
        logs[name].info(message, event.name, event.filename, event.line, event.reason)


def _kept(event: events.GraphKept, logs: Logs) -> None:
    message = "the graph of %s (%s:%d) runs as captured, without backend %s: %s"
    for name in ("capture", "aot_graphs"):
        logs[name].info(message, event.name, event.filename, event.line, event.backend, event.reason)


def _failed(event: events.GraphFailed, logs: Logs) -> None:
    message = "the graph of %s (%s:%d) raised, its frame runs eagerly: %r"
    logs["capture"].info(message, event.name, event.filename, event.line, event.error)


def _loaded(event: events.FrameLoaded, logs: Logs) -> None:
    logs["cache"].info("loaded %s (%s:%d), %.3f s", event.name, event.filename, event.line, event.seconds)


def _stored(event: events.FrameStored, logs: Logs) -> None:
    what = f"not kept: {event.reason}" if event.reason else "kept"
    logs["cache"].info("%s (%s:%d) is %s", event.name, event.filename, event.line, what)


def _refused(event: events.FrameRefused, logs: Logs) -> None:
    message = "a frame on disk of %s (%s:%d) is not used: %s"
    logs["cache"].info(message, event.name, event.filename, event.line, event.reason)


def _recompiled(event: events.Recompiled, logs: Logs) -> None:
    logs["recompiles"].info(
        "%s (%s:%d) recompiles, %d entries do not hold: %s\n  user line: %s",
        *(event.name, event.filename, event.line, event.entries, event.guard, event.user_line),
    )


def _artefact(event: events.Artefact, logs: Logs) -> None:
    logs["output_code"].info("%s of %s for %s:\n%s", event.name, event.backend, event.frame, event.text)


def _aten(event: events.AtenGraph, logs: Logs) -> None:
    log = logs["aot_graphs"].debug if event.kind == "joint" else logs["aot_graphs"].info
    if logs["aot_graphs"].isEnabledFor(logging.DEBUG if event.kind == "joint" else logging.INFO):
        log("%s graph of %s for %s:\n%s", event.kind, event.frame, event.backend, readable(event.graph))


def _scheduled(event: events.Scheduled, logs: Logs) -> None:
    place = f"{event.kind} graph of {event.frame} by {event.backend}"
    rows = "\n".join(f"  {describe_launch(launch)}" for launch in event.launches)
    logs["fusion"].info("%s: %s\n%s", place, describe_counts(event), rows)
    logs["fusion"].debug("%s, loops before fusion:\n%s\nafter:\n%s", place, event.before, event.after)


def _limit(event: events.LimitReached, logs: Logs) -> None:
    message = "%s (%s:%d) has %d forms, other calls run eagerly; the guard that kept failing: %s"
    logs["recompiles"].info(message, event.name, event.filename, event.line, event.entries, event.guard)


def _told(event: events.Told, logs: Logs) -> None:
    logs["capture"].info("%s, of %s:\n%s", event.title, event.frame, "\n".join(f"  {row}" for row in event.rows))


def _phase(event: events.Phase, logs: Logs) -> None:
    logs["timing"].info("%s of %s: %.4f s", event.name, event.frame, event.seconds)
    logs["timing"].debug("%s of %s by itself: %.4f s", event.name, event.frame, event.own)


def _step(event: events.Step, logs: Logs) -> None:
    text = f"Step {event.number}: {event.name}"
    if event.seconds is None:
        logs["steps"].info("%s of %s begins", text, event.frame)
        return
    how = f"fails with {event.failed}" if event.failed else "ends"
    logs["steps"].info("%s of %s %s, %.3f s", text, event.frame, how, event.seconds)


# A bare GraphBreak is not written: it comes again with the frame that it ended.
_WRITERS: dict[type, Callable[..., None]] = {
    events.FrameCaptured: _captured,
    events.FrameLoaded: _loaded,
    events.FrameRefused: _refused,
    events.FrameSkipped: _skipped,
    events.FrameStored: _stored,
    events.GraphKept: _kept,
    events.GraphFailed: _failed,
    events.Recompiled: _recompiled,
    events.Artefact: _artefact,
    events.AtenGraph: _aten,
    events.Scheduled: _scheduled,
    events.LimitReached: _limit,
    events.Phase: _phase,
    events.Told: _told,
    events.Step: _step,
}


def problem(spec: str) -> InvalidOption | None:
    """What is wrong with ``JITNEY_LOGS`` if it says this; None if nothing is."""
    try:
        _parse(spec)
    except InvalidOption as error:
        return InvalidOption(f"environment variable JITNEY_LOGS: {error.reason}", hint=error.hint, phase="logs")
    return None


if config.logs:
    if (_problem := problem(config.logs)) is None:
        set_logs(config.logs)
    else:
        warn(f"{_problem}\n(nothing is logged)")
