"""Events as plain data, one line of JSON each: what a debug folder keeps, and what the report reads."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary
from typing import Any

from torch import fx

from jitney import events
from jitney.debug import is_users
from jitney.debug.hints import hints
from jitney_tools.drawing.rows import rows

FILE = "events.jsonl"
FORMAT = 1

Record = dict[str, Any]


def record(event: events.Event, number: int) -> Record:
    """The event as plain data: its class's name as ``event``, the frame's number, its fields, and its ``hints``."""
    own: Record = {"event": type(event).__name__, "number": number}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if isinstance(event, events.GraphCaptured) and field.name == "inputs":
            continue
        if isinstance(event, events.FrameCaptured) and field.name == "graph":
            own["lines"] = _lines(value)
            continue
        own[field.name] = _plain(value)
    told = hints(event)
    return own | {"hints": told} if told else own


def _lines(graph: fx.GraphModule | None) -> list[str]:
    """The user's lines that a graph has operations of, and those that call them."""
    nodes = graph.graph.nodes if graph is not None else ()
    stacks = [node.meta.get("user_stack", ()) for node in nodes]
    return sorted({f"{f.filename}:{f.lineno}" for stack in stacks for f in stack if is_users(f.filename)})


def _plain(value: Any) -> Any:
    if isinstance(value, fx.GraphModule):
        value = value.graph
    if isinstance(value, fx.Graph):
        return [row.plain() for row in rows(value)]
    if isinstance(value, FrameSummary):
        return {"file": value.filename, "line": value.lineno, "name": value.name, "text": value.line or ""}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else repr(value)


def read(folder: Path) -> Iterator[Record]:
    """The records of a debug folder, in order. A last line that was cut off is left out."""
    with open(folder / FILE, encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)
