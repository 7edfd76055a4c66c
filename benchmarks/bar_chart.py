"""Horizontal bars of speeds as the text of an SVG file that reads on light and dark backgrounds alike."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

# Each has a contrast of at least 3 to both white and near-black, so the page's own background can stay.
INK = "#768390"
GREY = "#8b949e"
BARS = ("#3b82f6", "#d97706", "#16a34a", "#c026d3")

LEFT, WIDE, BAR, GAP, TOP = 190, 440, 14, 10, 66


def speed_chart(
    title: str, note: str, series: Mapping[str, str], groups: Mapping[str, Mapping[str, float | str | None]]
) -> str:
    """The chart: one group for each workload, one bar for each of `series`, a line at 1.

    Args:
        title: the first line.
        note: the second.
        series: names in the order of their bars, and their colors; the legend.
        groups: by workload and name, how many times faster than the reference, or a word where there is no speed.
    """
    values = [v for group in groups.values() for v in group.values() if isinstance(v, (int, float))]
    scale = WIDE / max(1.0, *values, 1.0)
    parts = [_text(12, 20, title, 'font-size="15" font-weight="bold"'), _text(12, 37, note)]
    parts += _legend(series)
    y = TOP
    for label, group in groups.items():
        parts.append(_text(LEFT - 8, y + BAR * len(series) / 2 + 3, label, 'text-anchor="end"'))
        for name, color in series.items():
            parts += _bar(y, group.get(name), scale, color)
            y += BAR
        y += GAP
    one = LEFT + scale
    parts.append(f'<path d="M{one:.1f} {TOP - 6}V{y - GAP + 4}" stroke="{INK}" stroke-dasharray="3 2"/>')
    parts.append(_text(one, y + 8, "1.0", 'text-anchor="middle"'))
    width, height = LEFT + WIDE + 60, y + 18
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}">'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def _bar(y: float, value: float | str | None, scale: float, color: str) -> list[str]:
    if value is None or isinstance(value, str):
        return [_text(LEFT + scale + 5, y + BAR - 4, value or "no figure")]
    width = max(1.0, value * scale)
    return [
        f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" rx="1" fill="{color}"/>',
        _text(LEFT + max(width, scale) + 5, y + BAR - 4, f"{value:.2f}"),
    ]


def _legend(colors: Mapping[str, str]) -> list[str]:
    parts: list[str] = []
    x = float(LEFT)
    for name, color in colors.items():
        parts.append(f'<rect x="{x:.0f}" y="44" width="10" height="10" fill="{color}"/>')
        parts.append(_text(x + 15, 53, name))
        x += 40 + 6.5 * len(name)
    return parts


def _text(x: float, y: float, content: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes and " " + attributes}>{escape(content)}</text>'
