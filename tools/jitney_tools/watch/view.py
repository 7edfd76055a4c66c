"""A state on the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jitney_tools.watch.state import State

SHOWN = 6  # rows of a table
WIDTH = 40  # of the bar
PARTS = {"graphs": "green", "breaks": "red", "guards": "yellow", "compiling": "blue"}
COUNTS = ("graphs", "captured", "loaded", "refused", "recompiles", "breaks", "left eager", "graphs failed")
LATE = 5.0  # seconds without news


def overview(states: Sequence[State]) -> RenderableType:
    """All processes, a row each."""
    table = _table("pid", "program", "graphs", "recompiles", "breaks", "in graphs", "compiles")
    for state in states:
        flying = state.in_flight[-1] if state.in_flight else None
        table.add_row(
            str(state.pid),
            _plain(state.program),
            *(str(state.counts.get(name, 0)) for name in ("graphs", "recompiles", "breaks")),
            _share(state, "graphs"),
            Text("") if flying is None else _plain(f"{flying.function}: {flying.phase}"),
        )
    return table


def view(state: State) -> RenderableType:
    """One process in detail."""
    now = time.time()
    late = f", no news for {state.age:.0f} s" if state.age > LATE else ""
    head = Text.assemble((str(state.pid), "bold"), " ", _plain(state.program), f"  {now - state.started:.0f} s{late}")
    counts = "  ".join(f"{name} {state.counts.get(name, 0)}" for name in COUNTS if state.counts.get(name))
    parts: list[RenderableType] = [head, _bar(state), Text(counts or "nothing compiled yet")]
    flying = [(f.function, f.phase, f"{max(0.0, now - f.begin):.1f} s", f.line) for f in state.in_flight]
    again = [(f"{now - r.at:.0f} s ago", r.function, r.guard, r.line) for r in reversed(state.recompiles)]
    breaks = [(f"{row.count}", row.line, row.reason) for row in state.breaks]
    functions = [(f"{f.seconds:.2f} s", str(f.captures), str(f.loaded), f.name, f.line) for f in state.functions]
    for rows, columns in (
        (flying, ("compiled now", "phase", "for", "called from")),
        (again, ("recompiled", "function", "guard that failed", "read at")),
        (breaks, ("breaks", "line", "reason")),
        (functions, ("capture took", "captured", "from disk", "function", "at")),
    ):
        if rows:
            parts += [Text(""), _filled(columns, rows[:SHOWN])]
    return Group(*parts)


def _bar(state: State) -> Text:
    """How the time of threads in compiled functions divides."""
    whole = sum(state.seconds.values())
    text = Text()
    if not whole:
        return text
    for name, colour in PARTS.items():
        text.append("█" * round(WIDTH * state.seconds.get(name, 0.0) / whole), style=colour)
    for name, colour in PARTS.items():
        text.append(f"  {name} {_share(state, name)}", style=colour)
    return text


def _share(state: State, name: str) -> str:
    whole = sum(state.seconds.values())
    return f"{100 * state.seconds.get(name, 0.0) / whole:.0f}%" if whole else ""


def _filled(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = _table(*columns)
    for row in rows:
        table.add_row(*map(_plain, row))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _plain(text: str) -> Text:
    """Text of another process, which is to move no cursor."""
    return Text("".join(c if c.isprintable() else " " for c in text))
