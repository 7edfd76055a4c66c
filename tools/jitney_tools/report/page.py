"""The page: what happened at a glance, the user's source, then everything in detail for who opens it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from jitney.debug.text import size
from jitney_tools.drawing.picture import style
from jitney_tools.report.assets import CSS, SCRIPT
from jitney_tools.report.charts import timeline
from jitney_tools.report.frames import frame_details
from jitney_tools.report.html import Later, escape, short_path, table
from jitney_tools.report.run import Run, load
from jitney_tools.report.sources import sources

MOST = 40  # rows of a table
TOP = 15  # kernels
LONGEST = 200  # characters of a value


def write_report(folder: Path, to: Path | None = None) -> Path:
    """Make the page of a debug folder.

    Args:
        folder: ``.../run_<time>-pid_<pid>``.
        to: the file; ``report.html`` in the folder if None.

    Raises:
        JitneyError: the folder is none.
    """
    run = load(folder)
    file = to or folder / "report.html"
    file.write_text(page(run), encoding="utf-8")
    return file


def page(run: Run) -> str:
    """The HTML text."""
    later = Later()
    parts = {
        "What keeps it from being fast": _hints(run),
        "Source": sources(run),
        "Compiled again": _recompiles(run),
        "Compile time": timeline(run.phases),
        "Kernels": _kernels(run),
        "Not compiled": _fallbacks(run),
        "Frames": _frames(run, later),
    }
    shown = {title: body for title, body in parts.items() if body}
    links = "".join(f'<a href="#{_anchor(title)}">{title}</a>' for title in shown)
    body = "".join(f'<section id="{_anchor(t)}"><h2>{t}</h2>{text}</section>' for t, text in shown.items())
    name = escape(run.path.resolve().name)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>jitney: {name}</title><style>{CSS}{style()}</style></head><body>"
        f"<header><h1>jitney <small>{name}</small></h1><nav>{links}</nav></header><main>{_cards(run)}{body}</main>"
        f"<footer>written {time.strftime('%Y-%m-%d %H:%M')}</footer>{later.scripts()}"
        f"<script>{SCRIPT}</script></body></html>"
    )


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _cards(run: Run) -> str:
    frames = list(run.frames.values())
    done = [frame for frame in frames if frame.captured]
    numbers: dict[str, Any] = {
        "frames captured": len(done),
        "graphs": sum(bool(frame.captured.get("op_count")) for frame in done),
        "operations": sum(frame.operations for frame in done),
        "graph breaks": sum(frame.stop is not None for frame in done),
        "recompiles": sum(frame.cause is not None for frame in frames),
        "kernels": sum(frame.kernels for frame in frames),
        "seconds of compiling": f"{sum(p['own'] for p in run.phases):.2f}",
    }
    bad = {"graph breaks", "recompiles"}
    cards = "".join(
        f'<div class="card{" bad" if name in bad and number else ""}"><b>{number}</b>{name}</div>'
        for name, number in numbers.items()
    )
    return f'<div class="cards">{cards}</div>'


def _hints(run: Run) -> str:
    if not run.hints:
        return ""
    rows = list(run.hints.items())
    listed = "".join(f"<li>{escape(h)}{f' <small>{n} times</small>' if n > 1 else ''}</li>" for h, n in rows[:MOST])
    more = f"<p>and {len(rows) - MOST} more</p>" if len(rows) > MOST else ""
    return f'<ul class="hints">{listed}</ul>{more}'


def _recompiles(run: Run) -> str:
    causes = [(frame, frame.cause) for frame in run.frames.values() if frame.cause is not None]
    rows = [
        (
            f"#{frame.number} <b>{escape(frame.name)}</b>",
            f"<code>{escape((cause['expected'] or cause['guard'])[:LONGEST])}</code>",
            f"<code>{escape(cause['found'][:LONGEST])}</code>",
            f"{short_path(cause['user_line'])}",
        )
        for frame, cause in causes
    ]
    limits = "".join(
        f'<p class="note again"><b>Limit</b> {escape(own["name"])} ({short_path(own["filename"])}:{own["line"]}) has '
        f"{own['entries']} forms; other calls run eagerly. The guard that kept failing: {escape(own['guard'])}</p>"
        for own in run.limits
    )
    if not rows:
        return limits
    return limits + table(["frame", "was compiled for", "met", "read at"], rows, kind="two")


def _kernels(run: Run) -> str:
    rows = []
    for frame in run.frames.values():
        for made in frame.schedules:
            for launch in made["launches"]:
                own = run.measured.get((frame.number, made["kind"], launch["name"]))
                moved = launch["read"] + launch["written"]
                rows.append((own["seconds"] * own["runs"] if own else 0.0, moved, frame, made, launch, own))
    if not rows:
        return ""
    rows.sort(key=lambda row: (-row[0], -row[1]))
    most = max(row[1] / row[5]["seconds"] if row[5] and row[5]["seconds"] else 0.0 for row in rows)
    cells = []
    for seconds, moved, frame, made, launch, own in rows[:TOP]:
        speed = moved / own["seconds"] if own and own["seconds"] else 0.0
        bar = (
            f'<meter min="0" max="{most / 1e9:.3f}" value="{speed / 1e9:.3f}"></meter> {speed / 1e9:.1f}'
            if speed
            else ""
        )
        kind = "kernel" if launch["kind"] == "kernel" else "as a whole"
        graph = f"#{frame.number} {escape(frame.name)}, {escape(made['kind'])}"
        cells.append((escape(launch["name"]), kind, graph, size(moved), f"{seconds * 1e6:.1f}" if own else "", bar))
    note = (
        ""
        if run.measured
        else "<p>Bytes are what each must move; <code>jitney profile --report</code> measures times.</p>"
    )
    more = f"<p>The {TOP} largest of {len(rows)}; all are with their frames.</p>" if len(rows) > TOP else ""
    return note + table(["kernel or operator", "how", "graph", "#bytes", "#µs per call", "#GB/s"], cells) + more


def _fallbacks(run: Run) -> str:
    rows = [
        ("left eager", own["name"], f"{short_path(own['filename'])}:{own['line']}", own["reason"])
        for own in run.skipped
    ]
    rows += [
        ("operator by operator", f.name, f"{short_path(f.file)}:{f.line}", f.kept)
        for f in run.frames.values()
        if f.kept
    ]
    rows += [
        ("graph raised", own["name"], f"{short_path(own['filename'])}:{own['line']}", own["error"])
        for own in run.failed
    ]
    if not rows:
        return ""
    cells = [(kind, f"<b>{escape(name)}</b>", where, escape(why)) for kind, name, where, why in rows[:MOST]]
    more = f"<p>and {len(rows) - MOST} more</p>" if len(rows) > MOST else ""
    return table(["what", "function", "where", "why"], cells) + more


def _frames(run: Run, later: Later) -> str:
    frames = [frame for frame in run.frames.values() if frame.name and frame.number]
    if not frames:
        return ""
    search = '<input id="find" type="search" placeholder="find by name, file or #number" aria-label="find frames">'
    return search + "".join(frame_details(frame, run, later) for frame in frames)
