"""The two charts of a report: phases of compiling over time, memory over a schedule; SVG in the page's colours."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape

from jitney.debug.text import size
from jitney_tools.debug_folder.event_log import Record

WIDTH = 1080.0
BAR, GAP = 18.0, 3.0
MOST = 1500  # bars; the shortest are left out
IDLE = 0.04  # of the time spent compiling: a pause that is longer is drawn as long as this
FAMILIES = ("capture", "aot", "backend", "emit", "extension", "load")


def timeline(phases: Sequence[Record]) -> str:
    """Phases as bars, those within others below these. Pauses in which nothing is compiled are cut short."""
    if not phases:
        return ""
    shown = sorted(sorted(phases, key=lambda p: -p["seconds"])[:MOST], key=lambda p: (p["begin"], -p["seconds"]))
    place, cuts, total = _scale(shown)
    open_: list[float] = []  # ends of the bars above
    bars, deepest = [], 0
    for phase in shown:
        while open_ and open_[-1] <= phase["begin"] + 1e-9:
            open_.pop()
        depth = len(open_)
        open_.append(phase["begin"] + phase["seconds"])
        deepest = max(deepest, depth)
        bars.append(_bar(phase, place(phase["begin"]), place(phase["begin"] + phase["seconds"]), depth))
    height = (deepest + 1) * (BAR + GAP)
    marks = "".join(f'<line class="cut" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height:.0f}"/>' for x in cuts)
    left = "" if len(shown) == len(phases) else f"<p>The {len(shown)} longest of {len(phases)} phases.</p>"
    ruler = f'<text class="f" x="0" y="{height + 13:.0f}">0</text>'
    ruler += f'<text class="f e" x="{WIDTH:.0f}" y="{height + 13:.0f}">{total:.2f} s of compiling</text>'
    return (
        f'<div class="scroll"><svg class="timeline" viewBox="0 0 {WIDTH:.0f} {height + 18:.0f}" role="img">'
        f"{marks}{''.join(bars)}{ruler}</svg></div>{left}"
    )


def _scale(phases: Sequence[Record]) -> tuple[_Place, list[float], float]:
    """From time to a place along the chart; where pauses were cut; seconds without pauses."""
    spans: list[list[float]] = []
    for phase in phases:
        begin, end = phase["begin"], phase["begin"] + phase["seconds"]
        if spans and begin <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([begin, end])
    busy = sum(end - begin for begin, end in spans) or 1e-9
    pauses = [min(b[0] - a[1], IDLE * busy) for a, b in itertools.pairwise(spans)]
    if sum(pauses) > busy / 3:  # many small ones must not fill the chart
        pauses = [p * busy / 3 / sum(pauses) for p in pauses]
    factor = WIDTH / (busy + sum(pauses))
    starts, at = [], 0.0
    for number, (begin, end) in enumerate(spans):
        starts.append((begin, at))
        at += (end - begin) + (pauses[number] if number < len(pauses) else 0.0)
    cuts = [
        factor * (starts[n + 1][1] - pauses[n] / 2)
        for n in range(len(pauses))
        if spans[n + 1][0] - spans[n][1] > pauses[n]
    ]
    return _Place(starts, factor), cuts if len(cuts) < 200 else [], busy


class _Place:
    """From a moment to a place along the chart."""

    def __init__(self, starts: list[tuple[float, float]], factor: float) -> None:
        self.starts = starts
        self.factor = factor
        self.at = 0

    def __call__(self, moment: float) -> float:
        begin, place = max((s for s in self.starts if s[0] <= moment + 1e-12), default=self.starts[0])
        return self.factor * (place + moment - begin)


def _bar(phase: Record, left: float, right: float, depth: int) -> str:
    width = max(right - left, 0.6)
    family = next((f for f in FAMILIES if phase["name"].startswith(f)), "other")
    told = f"{phase['name']} of {phase['frame']} (graph {phase['number']}): {phase['seconds'] * 1e3:.1f} ms"
    y = depth * (BAR + GAP)
    room = int((width - 8) / 6)
    label = "" if room < 4 else phase["name"] if len(phase["name"]) <= room else phase["name"][: room - 1] + "…"
    text = f'<text x="{left + 4:.1f}" y="{y + 13:.0f}">{escape(label)}</text>' if label else ""
    return (
        f'<g class="p-{family}"><title>{escape(told)}</title><rect x="{left:.2f}" y="{y:.0f}" width="{width:.2f}" '
        f'height="{BAR:.0f}" rx="2"/>{text}</g>'
    )


def memory(schedule: Record, height: float = 120.0) -> str:
    """Bytes alive while each kernel and operator runs, as steps."""
    alive = [launch["alive"] for launch in schedule["launches"]]
    if not alive:
        return ""
    most = max(alive) or 1
    step = WIDTH / len(alive)
    points = [f"M0 {height:.0f}"]
    for number, count in enumerate(alive):
        y = height - (height - 14) * count / most
        points.append(f"L{number * step:.1f} {y:.1f}L{(number + 1) * step:.1f} {y:.1f}")
    points.append(f"L{WIDTH:.0f} {height:.0f}Z")
    zones = "".join(
        f'<rect class="zone" x="{n * step:.2f}" y="0" width="{step:.2f}" height="{height:.0f}">'
        f"<title>{escape(launch['name'])}: {size(launch['alive'])} alive</title></rect>"
        for n, launch in enumerate(schedule["launches"])
    )
    low = f"{height + 13:.0f}"
    told = f"peak {size(most)}; arena {size(schedule['arena'])}"
    return (
        f'<svg class="memory" viewBox="0 0 {WIDTH:.0f} {height + 16:.0f}" role="img"><path d="{"".join(points)}"/>'
        f'{zones}<text class="f" x="0" y="{low}">first</text>'
        f'<text class="f e" x="{WIDTH:.0f}" y="{low}">{told}</text></svg>'
    )
