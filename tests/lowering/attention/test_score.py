"""Scores of attention as text: what comes back is the same graph, and nothing in a text is executed."""

from __future__ import annotations

import json

import pytest
import torch
from torch import fx

from jitney_lowering.attention import FORWARD, NotSaid, Score

aten = torch.ops.aten


def capped() -> Score:
    graph = fx.Graph()
    products, bias = graph.placeholder("products"), graph.placeholder("bias")
    scores = graph.call_function(aten.add.Tensor, (products, bias), {"alpha": 2})
    there = graph.call_function(aten.arange.default, (5,), {"device": torch.device("cpu"), "dtype": torch.int64})
    seen = graph.call_function(aten.lt.Scalar, (there, 3))
    hidden = graph.call_function(
        aten.scalar_tensor.default, (float("-inf"),), {"dtype": torch.float32, "device": torch.device("cpu")}
    )
    found = graph.call_function(aten.where.self, (seen, scores, hidden))
    graph.output((found,))
    return Score(graph, False, (2, 4, 5), torch.float32)


def test_the_text_says_all() -> None:
    score = capped()
    again = Score.of(score.text())
    assert again.text() == score.text()
    assert (again.size, again.dtype, again.gradient) == (score.size, score.dtype, score.gradient)
    given = [torch.randn(2, 4, 5), torch.randn(5)]
    made = fx.Interpreter(again.filled(given, torch.device("cpu"))).run(*given)
    expected = torch.where(torch.arange(5) < 3, given[0] + 2 * given[1], float("-inf"))
    torch.testing.assert_close(made[0], expected)


def test_devices_are_those_of_the_call() -> None:
    filled = capped().filled([torch.empty(2, 4, 5), torch.empty(5)], torch.device("cuda"))
    stands = [n.meta["val"] for n in filled.graph.nodes if "val" in n.meta]
    assert stands and {x.device.type for x in stands} == {"cuda"}


@pytest.mark.parametrize("target", [torch.add, FORWARD], ids=["function", "ours"])
def test_what_is_no_operator_of_torchs_is_not_said(target: object) -> None:
    graph = fx.Graph()
    found = graph.call_function(target, (graph.placeholder("products"), 1))
    graph.output((found,))
    with pytest.raises(NotSaid):
        Score(graph, False, (1,), torch.float32).text()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((1, 0, 0), "os.system.default"),
        ((1, 0, 0), "aten.__class__.mro"),
        ((1, 0, 0), "aten.add"),
        ((1, 0, 0), "prims.__init__.default"),
        ((1, 0, 0), "profiler._record_function_enter.default"),
        ((1, 0, 1), [{"is": "node", "value": 99}]),
        ((1, 0, 1), [{"is": "dtype", "value": "load"}]),
        ((1, 0, 1), [{"is": "module", "value": "os"}]),
        ((2,), ["x"]),
        ((0,), "many"),
        ((5,), {"is": "dtype", "value": "nn"}),
    ],
)
def test_hostile_texts_are_refused(place: tuple[int, ...], value: object) -> None:
    said = json.loads(capped().text())
    at = said
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    with pytest.raises(ValueError, match="no score"):
        Score.of(json.dumps(said))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[1, 2", '"aten"', "[" * 200])
def test_what_is_no_text_of_a_score(text: str) -> None:
    with pytest.raises(ValueError, match="no score"):
        Score.of(text)
