"""The debug folder: everything that is compiled, as files to read (``JITNEY_COMPILE_DEBUG=1``).

BASE/run_<time>-pid_<pid>/
    debug.log               all logs, each event as it came
    events.jsonl            the same as data: `jitney report` makes a page of it
    0001_forward/           one folder for each captured frame
        fx_graph_readable.py, fx_graph_runnable.py, fx_graph_transformed.py, emitted.py, guards.txt
        aten_joint.txt, aten_forward.txt, ...
        ir_pre_fusion_forward.txt, ir_post_fusion_forward.txt
        output_code_forward.txt, llvm_ir_forward.ll, ...
        graph_captured.svg, graph_forward.svg, ...
"""

from __future__ import annotations

import atexit
import json
import linecache
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from jitney import events
from jitney._util.forks import reentrant_lock
from jitney.config import config
from jitney.debug import is_users
from jitney.debug.logs import loggers_to, write_to
from jitney.debug.text import readable
from jitney_tools.debug_folder.event_log import FILE, FORMAT, record
from jitney_tools.debug_folder.runnable import program
from jitney_tools.drawing.picture import svg
from jitney_tools.drawing.rows import rows

LOG = "debug.log"
ENDINGS = {"llvm_ir": ".ll", "llvm_ir_optimised": ".ll", "assembly": ".s", "aot_wrapper": ".py"}  # else .txt
_log = logging.getLogger("jitney.debug")


class DebugFolder:
    """One run's folder.

    Args:
        base: in which it is made; nothing is until the first event comes.
    """

    def __init__(self, base: Path) -> None:
        stamp = time.strftime("%Y_%m_%d_%H_%M_%S")
        path, again = base / f"run_{stamp}-pid_{os.getpid()}", 0
        while path.exists():
            again += 1
            path = base / f"run_{stamp}-pid_{os.getpid()}_{again}"
        self.path = path
        self.pid = os.getpid()
        self.lock = reentrant_lock()
        self.seen: set[str] = set()  # source files
        self.names: dict[int, str] = {}  # of the folders, by the frame's number
        self.counts: dict[tuple[int, str], int] = {}
        path.mkdir(parents=True)
        self.events: TextIO = open(path / FILE, "w", encoding="utf-8")  # noqa: SIM115 # open as long as the process
        self.log: TextIO = open(path / LOG if config.trace_debug_log else os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        self.logs = loggers_to(self.log)
        self.add_record({"event": "Run", "format": FORMAT, "started": time.time(), "begin": time.perf_counter()})
        _log.warning("jitney: what is compiled is written to %s; `jitney report %s` makes a page of it", path, path)

    def add(self, event: events.Event) -> None:
        """Write what there is to write of an event."""
        with self.lock:
            number = events.subject()
            own = record(event, number)
            for file in _files(own):
                self._source(file)
            self.add_record(own)
            if config.trace_debug_log:
                write_to(event, self.logs)
            write = _WRITERS.get(type(event))
            if write is not None:
                write(self, event, number)

    def add_record(self, own: dict[str, Any]) -> None:
        """One line of data."""
        self.events.write(json.dumps(own) + "\n")
        self.events.flush()

    def frame(self, number: int, name: str) -> Path:
        """The folder of a frame."""
        if number not in self.names:
            self.names[number] = f"{number:04d}_{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:60]}"
            (self.path / self.names[number]).mkdir(exist_ok=True)
        return self.path / self.names[number]

    def write(self, number: int, name: str, file: str, text: str) -> None:
        """A file of a frame; a second one of the same name gets a number."""
        count = self.counts[number, file] = self.counts.get((number, file), 0) + 1
        stem, ending = os.path.splitext(file)
        unique = file if count == 1 else f"{stem}_{count}{ending}"
        (self.frame(number, name) / unique).write_text(text, encoding="utf-8")

    def close(self) -> None:
        """Close the files."""
        self.events.close()
        self.log.close()

    def _source(self, file: str) -> None:
        if file in self.seen:
            return
        self.seen.add(file)
        lines = linecache.getlines(file)
        if lines and is_users(file):
            self.add_record({"event": "Source", "file": file, "text": "".join(lines)})


def _files(own: dict[str, Any]) -> set[str]:
    """The source files that a record is about."""
    found = {own["filename"]} if "filename" in own else set()
    found |= {line.rpartition(":")[0] for line in own.get("lines", ())}
    stop = own.get("graph_break") or {}
    return found | {frame["file"] for frame in stop.get("user_stack", ())}


# ---------------------------------------------------------------------- what is written of each event


def _graph(folder: DebugFolder, event: events.GraphCaptured, number: int) -> None:
    name, switches = event.name, config.trace
    title = f"The graph of {name} ({event.filename}:{event.line})"
    if event.transformed:
        if switches.fx_graph_transformed:
            text = event.graph.print_readable(print_output=False)
            folder.write(number, name, "fx_graph_transformed.py", f"# {title}, as extensions have changed it\n{text}\n")
        return
    if switches.fx_graph:
        text = event.graph.print_readable(print_output=False)
        folder.write(number, name, "fx_graph_readable.py", f"# {title}\n{text}\n")
    if switches.fx_graph_runnable:
        folder.write(number, name, "fx_graph_runnable.py", program(event.graph, event.inputs, title + "."))
    if switches.graph_svg:
        folder.write(number, name, "graph_captured.svg", svg(rows(event.graph.graph)))


def _captured(folder: DebugFolder, event: events.FrameCaptured, number: int) -> None:
    if config.trace_output_code:
        folder.write(number, event.name, "emitted.py", event.source)
    folder.write(number, event.name, "guards.txt", "".join(f"{guard}\n" for guard in event.guards))


def _aten(folder: DebugFolder, event: events.AtenGraph, number: int) -> None:
    if config.trace_aten_graphs:
        folder.write(number, event.frame, f"aten_{event.kind}.txt", readable(event.graph) + "\n")
    if config.trace_graph_svg:
        folder.write(number, event.frame, f"graph_{event.kind}.svg", svg(rows(event.graph)))


def _scheduled(folder: DebugFolder, event: events.Scheduled, number: int) -> None:
    if config.trace_ir_pre_fusion:
        folder.write(number, event.frame, f"ir_pre_fusion_{event.kind}.txt", event.before + "\n")
    if config.trace_ir_post_fusion:
        folder.write(number, event.frame, f"ir_post_fusion_{event.kind}.txt", event.after + "\n")


def _artefact(folder: DebugFolder, event: events.Artefact, number: int) -> None:
    if config.trace_output_code:
        kind = f"_{event.kind}" if event.kind else ""
        folder.write(number, event.frame, f"{event.name}{kind}{ENDINGS.get(event.name, '.txt')}", event.text)


_WRITERS: dict[type, Callable[[DebugFolder, Any, int], None]] = {
    events.GraphCaptured: _graph,
    events.FrameCaptured: _captured,
    events.AtenGraph: _aten,
    events.Scheduled: _scheduled,
    events.Artefact: _artefact,
}

# ---------------------------------------------------------------------- the process's


_open: dict[str, DebugFolder] = {}  # by base folder
_refused: set[str] = set()
_opening = reentrant_lock()


def current() -> DebugFolder | None:
    """The folder of this process below ``config.base_dir``, made now if need be; None if it cannot be written."""
    base = os.path.abspath(config.base_dir)
    with _opening:
        found = _open.get(base)
        if found is not None and found.pid == os.getpid():  # a forked child gets one of its own
            return found
        if base in _refused:
            return None
        try:
            found = _open[base] = DebugFolder(Path(base))
        except OSError as error:
            _refused.add(base)
            _log.warning("jitney: no debug folder: %s", error)
            return None
    atexit.register(found.close)
    return found


_latest: events.Event | None = None


def add(event: events.Event) -> None:
    """Write an event into the folder of this process, once: each registry of the process tells its extensions."""
    global _latest
    folder = current()
    if folder is None or event is _latest:
        return
    _latest = event
    try:
        folder.add(event)
    except OSError as error:  # a full disk must not end the program
        base = str(folder.path.parent)
        _refused.add(base)
        _open.pop(base, None)
        _log.warning("jitney: %s is not written any further: %s", folder.path, error)
    except Exception:  # whoever looks at a program must not change what it does: a fault of ours is told and no more
        _log.exception("jitney: a %s was not written to %s", type(event).__name__, folder.path)
