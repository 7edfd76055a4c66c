"""The chart is an SVG file that says each figure, and whose bars are as long as the figures are large."""

from __future__ import annotations

from xml.etree import ElementTree

import bar_chart
import pytest

SVG = "{http://www.w3.org/2000/svg}"
SERIES = {"peer": bar_chart.GREY, "mine": bar_chart.BARS[0]}
GROUPS = {
    "softmax": {"peer": 1.5, "mine": 3.0},
    "a < b & c": {"peer": 0.5, "mine": "wrong"},
    "gpt2": {"peer": None},
}


def drawn() -> ElementTree.Element:
    return ElementTree.fromstring(bar_chart.speed_chart("Speed", "a note", SERIES, GROUPS))


def texts(svg: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in svg.iter(f"{SVG}text")]


def bars(svg: ElementTree.Element) -> list[ElementTree.Element]:
    return [r for r in svg.iter(f"{SVG}rect") if float(r.attrib["x"]) == bar_chart.LEFT and "rx" in r.attrib]


def test_every_name_and_figure_is_there_as_text() -> None:
    said = texts(drawn())
    assert said[:4] == ["Speed", "a note", "peer", "mine"]
    assert said[4:] == [
        "softmax",
        "1.50",
        "3.00",
        "a < b & c",
        "0.50",
        "wrong",
        "gpt2",
        "no figure",
        "no figure",
        "1.0",
    ]


def test_bars_are_proportional_and_the_line_is_at_one() -> None:
    svg = drawn()
    widths = [float(bar.attrib["width"]) for bar in bars(svg)]
    assert widths == pytest.approx([1.5 * widths[1] / 3, widths[1], 0.5 * widths[1] / 3], abs=0.1)
    (line,) = svg.iter(f"{SVG}path")
    x = float(line.attrib["d"][1:].split()[0])
    assert x - bar_chart.LEFT == pytest.approx(widths[1] / 3, abs=0.1)


def test_what_is_drawn_lies_within_the_picture() -> None:
    svg = drawn()
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for bar in bars(svg):
        assert float(bar.attrib["x"]) + float(bar.attrib["width"]) <= width
        assert float(bar.attrib["y"]) + float(bar.attrib["height"]) <= height
    assert all(float(t.attrib["x"]) < width and float(t.attrib["y"]) <= height for t in svg.iter(f"{SVG}text"))


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", ["#ffffff", "#0d1117"])
@pytest.mark.parametrize("color", [bar_chart.INK, bar_chart.GREY, *bar_chart.BARS])
def test_colors_stand_out_from_light_and_dark_pages(color: str, background: str) -> None:
    light, dark = sorted((luminance(color), luminance(background)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3.0
