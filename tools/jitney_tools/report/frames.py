"""One captured frame of a report: its graphs, guards, kernels, memory and code. Built when it is opened."""

from __future__ import annotations

from jitney.debug.text import size
from jitney_tools.debug_folder.event_log import Record
from jitney_tools.drawing.picture import svg
from jitney_tools.report.charts import memory
from jitney_tools.report.html import Later, escape, short_path, table, text_block
from jitney_tools.report.run import Frame, Run

DRAWN = 1500  # nodes: a larger graph is a list


def frame_details(frame: Frame, run: Run, later: Later) -> str:
    """A closed part for one frame."""
    badges = []
    if frame.captured.get("resumed"):
        badges.append('<span class="badge">rest after a break</span>')
    if frame.cause is not None:
        badges.append('<span class="badge again">recompile</span>')
    if frame.stop is not None:
        badges.append('<span class="badge break">ends in a break</span>')
    if frame.kept:
        badges.append('<span class="badge eager">operator by operator</span>')
    if not frame.captured:
        badges.append('<span class="badge eager">not compiled to the end</span>')
    facts = f"{frame.operations} operations, {frame.kernels} kernels, {frame.seconds:.2f} s"
    place = f"{short_path(frame.file)}:{frame.line}"
    summary = (
        f'<span class="number">#{frame.number}</span> <b>{escape(frame.name)}</b> {place} '
        f"<small>{facts}</small> {' '.join(badges)}"
    )
    return later.details(
        summary, _body(frame, run, later), kind="frame", find=f"{frame.name} {frame.file} #{frame.number}"
    )


def _body(frame: Frame, run: Run, later: Later) -> str:
    parts = []
    if frame.cause is not None:
        parts.append(_cause(frame.cause))
    if frame.stop is not None:
        parts.append(_break(frame.stop))
    if frame.kept:
        parts.append(f"<p><b>Runs operator by operator:</b> {escape(frame.kept)}</p>")
    for title, rows in frame.graphs.items():
        count = sum(row.op.startswith("call_") for row in rows)
        picture = (
            svg(rows, own_style=False)
            if len(rows) <= DRAWN
            else text_block("\n".join(f"{r.name} = {r.label}" for r in rows))
        )
        parts.append(
            later.details(
                f"Graph, {escape(title)} <small>{count} operations</small>", f'<div class="scroll">{picture}</div>'
            )
        )
    for schedule in frame.schedules:
        parts.append(_schedule(frame, schedule, run, later))
    guards = frame.captured.get("guards", [])
    if guards:
        listed = "".join(f"<li><code>{escape(guard)}</code></li>" for guard in guards)
        parts.append(later.details(f"Guards <small>{len(guards)}</small>", f"<ol>{listed}</ol>"))
    if frame.captured.get("source"):
        parts.append(later.details("Emitted Python", text_block(frame.captured["source"])))
    for artefact in frame.artefacts:
        kind = f", {artefact['kind']}" if artefact["kind"] else ""
        title = f"{escape(artefact['name'])} <small>{escape(artefact['backend'])}{kind}</small>"
        parts.append(later.details(title, text_block(artefact["text"])))
    if frame.phases:
        times = ((escape(p["name"]), f"{p['own'] * 1e3:.1f} ms") for p in frame.phases)
        parts.append(later.details("Phases", table(["phase", "#by itself"], times)))
    return "".join(parts)


def _cause(cause: Record) -> str:
    found = f"<td>{escape(cause['found']) or 'another'}</td>"
    return (
        '<table class="two"><tr><th>compiled again because</th><th>at this call</th></tr>'
        f"<tr><td>{escape(cause['expected'] or cause['guard'])}</td>{found}</tr></table>"
        f"<p><small>read at {escape(cause['user_line'])}</small></p>"
    )


def _break(stop: Record) -> str:
    rows = "".join(
        f"<li>{short_path(f['file'])}:{f['line']}, in {escape(f['name'])} <code>{escape(f['text'].strip())}</code></li>"
        for f in stop["user_stack"]
    )
    advice = f"<br>Try: {escape(stop['hint'])}" if stop["hint"] else ""
    return f'<p class="note break"><b>Ends in a graph break:</b> {escape(stop["reason"])}{advice}</p><ol>{rows}</ol>'


def _schedule(frame: Frame, schedule: Record, run: Run, later: Later) -> str:
    launches = schedule["launches"]
    rows = []
    for launch in launches:
        own = run.measured.get((frame.number, schedule["kind"], launch["name"]))
        moved = launch["read"] + launch["written"]
        time = f"{own['seconds'] * 1e6:.1f}" if own else ""
        speed = f"{moved / own['seconds'] / 1e9:.1f}" if own and own["seconds"] else ""
        why = f" <small>{escape(launch['reason'])}</small>" if launch["reason"] else ""
        kind = "kernel" if launch["kind"] == "kernel" else f"as a whole{why}"
        name = later.details(escape(launch["name"]), text_block(launch["text"]), kind="inline")
        where = ", ".join(short_path(place) for place in launch["places"][:3])
        rows.append((name, kind, size(launch["read"]), size(launch["written"]), time, speed, where))
    kernels = sum(launch["kind"] == "kernel" for launch in launches)
    head = ["what", "how", "#reads", "#writes", "#µs", "#GB/s", "from"]
    body = f"{table(head, rows, kind='launches')}<h4>Memory</h4>{memory(schedule)}"
    body += later.details("Loops before fusion", text_block(schedule["before"]))
    body += later.details("Kernels after fusion", text_block(schedule["after"]))
    counts = f"{kernels} kernels, {len(launches) - kernels} operators as a whole"
    return later.details(f"Kernels, {escape(schedule['kind'])} <small>{counts}</small>", body)
