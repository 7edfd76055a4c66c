import xml.etree.ElementTree as ElementTree

import pytest
import torch

import jitney
from jitney import events
from jitney_tools.drawing.picture import svg
from jitney_tools.drawing.rows import Row, rows

SVG = "{http://www.w3.org/2000/svg}"


def kinds_of(text: str) -> list[str]:
    return [str(g.get("class")) for g in ElementTree.fromstring(text).iter(f"{SVG}g")]


def captured_rows(fn: object, *args: object) -> list[Row]:
    told: list[events.GraphCaptured] = []

    def collect(event: events.Event) -> None:
        if isinstance(event, events.GraphCaptured):
            told.append(event)

    with events.listen(collect), jitney.config.patch(cache=False):
        jitney.compile(fn, backend="eager")(*args)
    return rows(told[0].graph.graph)


def test_rows_say_what_each_node_is() -> None:
    x = torch.ones(2, 3)
    found = captured_rows(lambda x: torch.softmax(x @ x.t(), -1).reshape(-1) + 1, x)
    assert [(row.label, row.kind, row.facts) for row in found] == [
        ("arg0_x", "input", "f32[2, 3]"),
        ("t", "view", "f32[3, 2]"),
        ("matmul", "product", "f32[2, 2]"),
        ("softmax", "reduction", "f32[2, 2]"),
        ("reshape", "view", "f32[4]"),
        ("add", "pointwise", "f32[4]"),
    ]
    assert [row.inputs for row in found] == [(), (0,), (0, 1), (2,), (3,), (4,)]
    assert [row.output for row in found] == [False] * 5 + [True]
    assert found[2].place.partition(":")[0].endswith("test_picture.py")
    assert [Row.of(row.plain()) for row in found] == found


def row(name: str, *inputs: int, op: str = "call_function", output: bool = False) -> Row:
    kind = "input" if op == "placeholder" else "pointwise"
    return Row(name, op, name, "f32[2]", inputs, "model.py:3", kind, output)


def test_a_picture_is_well_formed_with_every_node() -> None:
    text = svg([row("x", op="placeholder"), row("a<b", 0), row("out", 1, output=True)], notes={"out": "kernel 1"})
    assert kinds_of(text) == ["k-input", "k-pointwise", "k-pointwise o"]
    assert "a&lt;b" in text and "kernel 1</title>" in text and "model.py:3" in text
    assert "prefers-color-scheme: dark" in text and "<style>" not in svg([row("x")], own_style=False)


def test_inputs_are_drawn_at_each_use_and_far_edges_are_names() -> None:
    chain = [row("x", op="placeholder"), *(row(f"n{n}", n, 0) for n in range(30)), row("end", 30, 1)]
    kinds = kinds_of(svg(chain))
    assert kinds.count("k-input") == 30 and kinds.count("k-name") == 1


@pytest.mark.parametrize("found", [[], [row("x", op="placeholder")]])
def test_graphs_without_operations_have_a_picture_too(found: list[Row]) -> None:
    assert len(kinds_of(svg(found))) == len(found)


def test_names_of_inputs_are_cut_at_their_begin() -> None:
    text = svg([row("arg24_n____modules__self____modules__query___parameters__weight", op="placeholder")])
    assert ">…g24_n.self.query.weight</text>" in text
