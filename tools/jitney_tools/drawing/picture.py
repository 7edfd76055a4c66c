"""A graph as SVG: boxes in layers, coloured by what they do, readable in light and dark and with hundreds of nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from jitney_tools.drawing.layout import Box, lay_out
from jitney_tools.drawing.rows import Row

CHARACTER, LINE, PADDING = 6.7, 13.0, 8.0  # of the monospaced font at 11 px
FAR = 14  # nodes in between, in the order of the graph: an edge over more is a name instead
LONGEST, SHORT = 34, 24  # characters of a line, and of an input's name
_PATH = re.compile(r"_*(modules|parameters|buffers)_+")  # how capture spells attribute paths of modules
MARGIN = 10.0
COLOURS: dict[str, tuple[str, str]] = {  # kind -> in light, in dark: Okabe and Ito's, paler or darker
    "pointwise": ("#d6e6f5", "#1f4361"),
    "product": ("#f6d5b8", "#6b3b10"),
    "reduction": ("#cdeadb", "#14503a"),
    "view": ("#ececec", "#3a3a3d"),
    "gather": ("#f3e7a6", "#575012"),
    "random": ("#ecd3e3", "#5c2f4b"),
    "input": ("#ffffff", "#17171a"),
    "constant": ("#ffffff", "#17171a"),
    "size": ("#ffffff", "#17171a"),
    "name": ("none", "none"),
}
STYLE = """
.g text{font:11px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1b1b1f;text-anchor:middle}
.g .f{fill:#5c5c66}.g rect{stroke:#9a9aa5;stroke-width:1}.g .o rect{stroke:#c23b22;stroke-width:2.5}
.g path{fill:none;stroke:#8a8a96;stroke-width:1}
.g .k-input rect,.g .k-constant rect,.g .k-size rect{stroke-dasharray:3 2}
.g .k-name rect{stroke:none}.g .k-name text{fill:#5c5c66;font-style:italic}
"""
DARK = """
.g text{fill:#ececf1}.g .f,.g .k-name text{fill:#a5a5b0}.g rect{stroke:#6d6d78}.g path{stroke:#7d7d8a}
.g .o rect{stroke:#ff8a70}
"""


def style() -> str:
    """CSS for ``svg(..., own_style=False)``."""
    light = "".join(f".g .k-{kind} rect{{fill:{colour[0]}}}" for kind, colour in COLOURS.items())
    dark = "".join(f".g .k-{kind} rect{{fill:{colour[1]}}}" for kind, colour in COLOURS.items())
    return f"{STYLE}{light}@media (prefers-color-scheme: dark){{{DARK}{dark}}}"


def svg(rows: Sequence[Row], *, notes: Mapping[str, str] | None = None, own_style: bool = True) -> str:
    """The picture. Inputs are drawn beside each node that reads them; outputs have a red frame.

    Args:
        rows: the graph.
        notes: more to be said of a node when the mouse is on it, by its name.
        own_style: put the CSS into it, for a file of its own.
    """
    nodes = _nodes(rows)
    boxes = [Box(_width(lines), len(lines) * LINE + PADDING, reads) for _, lines, _, reads in nodes]
    picture = lay_out(boxes)
    parts = [f'<path d="{_curve(points)}"/>' for points in picture.edges]
    for (row, lines, kind, _), box in zip(nodes, picture.boxes, strict=True):
        more = (notes or {}).get(row.name, "")
        parts.append(_box(row, lines, kind, box, more))
    width, height = picture.width + 2 * MARGIN, picture.height + 2 * MARGIN
    css = f"<style>{style()}</style>" if own_style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="g" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-MARGIN:.0f} {-MARGIN:.0f} {width:.0f} {height:.0f}">{css}{"".join(parts)}</svg>'
    )


_Node = tuple[Row, list[str], str, tuple[int, ...]]


def _nodes(rows: Sequence[Row]) -> list[_Node]:
    """What is drawn: each row that computes, and before it what it reads from far away or from outside, as a name."""
    drawn: list[_Node] = []
    at: dict[int, int] = {}
    used = {i for row in rows for i in row.inputs}
    for number, row in enumerate(rows):
        if _is_given(row) and number in used:
            continue
        reads = []
        for i in dict.fromkeys(row.inputs):
            if i in at and number - i <= FAR:
                reads.append(at[i])
                continue
            reads.append(len(drawn))
            given = _is_given(rows[i])
            lines = _lines(rows[i]) if given else [_cut(f"{rows[i].label} {rows[i].name}")]
            drawn.append((rows[i], lines, rows[i].kind if given else "name", ()))
        at[number] = len(drawn)
        drawn.append((row, _lines(row), row.kind, tuple(reads)))
    return drawn


def _is_given(row: Row) -> bool:
    return row.op in ("placeholder", "get_attr")


def _lines(row: Row) -> list[str]:
    label = _end(_PATH.sub(".", row.label).rstrip("_")) if _is_given(row) else _cut(row.label)
    return [label, *([_cut(row.facts)] if row.facts else [])]


def _end(text: str) -> str:
    """The end of a path, which tells more than its begin."""
    return text if len(text) <= SHORT else "…" + text[1 - SHORT :]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _width(lines: Sequence[str]) -> float:
    return max(map(len, lines)) * CHARACTER + 2 * PADDING


def _box(row: Row, lines: Sequence[str], kind: str, box: Box, more: str) -> str:
    told = "\n".join(filter(None, (f"{row.name} = {row.label}", row.facts, row.place, more)))
    middle = box.x + box.width / 2
    out = " o" if row.output and kind != "name" else ""
    texts = "".join(
        f'<text x="{middle:.1f}" y="{box.y + PADDING / 2 + LINE * (n + 0.78):.1f}"{" class=f" if n else ""}>'
        f"{escape(line)}</text>".replace("class=f", 'class="f"')
        for n, line in enumerate(lines)
    )
    return (
        f'<g class="k-{kind}{out}"><title>{escape(told)}</title><rect x="{box.x:.1f}" y="{box.y:.1f}" '
        f'width="{box.width:.1f}" height="{box.height:.1f}" rx="4"/>{texts}</g>'
    )


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """From point to point, leaving and arriving upright."""
    (x, y), *rest = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for nx, ny in rest:
        if abs(nx - x) < 0.5:
            parts.append(f"L{nx:.1f} {ny:.1f}")
        else:
            middle = (y + ny) / 2
            parts.append(f"C{x:.1f} {middle:.1f} {nx:.1f} {middle:.1f} {nx:.1f} {ny:.1f}")
        x, y = nx, ny
    return "".join(parts)
