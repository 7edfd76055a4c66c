"""The forms of one backward graph: as a whole, and cut at intermediates.

A backward graph as it is stored has two kinds of results: the gradients of inputs, then the whole gradient of each
intermediate, an ``alias`` through which all of it goes. Of this three graphs are made, each when it is needed, with the
same inputs: saved values, then tangents.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from torch import fx

from jitney.aot.form import Form
from jitney.aot.partition.split import Half
from jitney.aot.partition.undefined_gradients import without


def form_of(half: Half, saved: int, form: Form) -> Half:
    """One form of a backward graph.

    Args:
        half: as it is stored.
        saved: how many of its inputs are saved values.
        form: ``whole``: the gradients of inputs. ``below``: these where nothing goes through an intermediate, but
            what its own tangent says, which then is its whole gradient. ``between``: what intermediates get from the
            tangents of others, by no way through a third.
    """
    return FORMS[form](half, saved) if half.stops else half


def tangents_of(half: Half, saved: int, form: Form) -> list[Any]:
    """FakeTensors for the tangents of a form: the whole gradient of an intermediate may lie otherwise."""
    examples = [*half.inputs[saved:]]
    if form != "whole":
        for stop, at in zip(_stops(half), half.stops, strict=True):
            if at is not None:
                examples[at] = stop.meta["val"]
    return examples


def _stops(half: Half) -> list[fx.Node]:
    returned: Any = half.module.graph.output_node().args[0]
    return list(returned[len(returned) - len(half.stops) :])


def _whole(half: Half, saved: int) -> Half:
    copy = _Copy(half)
    for stop in copy.stops:
        stop.replace_all_uses_with(stop.all_input_nodes[0])
    return copy.half([copy.returned(value) for value in copy.gradients], half.inputs, half.outputs)


def _cut(half: Half, saved: int, between: bool) -> Half:
    copy = _Copy(half)
    arrived = [stop.all_input_nodes[0] for stop in copy.stops]
    replaced: dict[fx.Node, fx.Node] = {}
    for stop, at in zip(copy.stops, half.stops, strict=True):
        replaced[stop] = copy.nothing(stop) if at is None else copy.tangent(saved + at, stop)
    for stop, other in replaced.items():
        stop.replace_all_uses_with(other)
    results = [replaced.get(n, n) for n in (arrived if between else copy.gradients)]
    count = len(copy.gradients)
    values = half.outputs[count:] if between else half.outputs[:count]
    inputs = [n.meta["val"] for n in copy.inputs]
    made = copy.half(results, inputs, values)
    return without(made, saved, range(len(half.inputs) - saved, len(inputs) - saved))


class _Copy:
    """A copy of a stored backward graph, to be changed."""

    def __init__(self, half: Half) -> None:
        self.module = half.module
        self.graph = fx.Graph()
        self.nodes: dict[fx.Node, fx.Node] = {}
        returned: Any = self.graph.graph_copy(half.module.graph, self.nodes)
        self.inputs = self.graph.find_nodes(op="placeholder")
        self.gradients = list(returned[: len(returned) - len(half.stops)])
        self.stops: list[fx.Node] = list(returned[len(self.gradients) :])

    def returned(self, value: Any) -> Any:
        """A result of the graph as a whole; where that is a stop, what arrives there."""
        while value in self.stops:
            value = value.all_input_nodes[0]
        return value

    def tangent(self, at: int, stop: fx.Node) -> fx.Node:
        """The input at this position, which is what goes through a stop now."""
        self.inputs[at].meta = dict(stop.meta)
        return self.inputs[at]

    def nothing(self, stop: fx.Node) -> fx.Node:
        """A further input in a stop's place, which is never there."""
        with self.graph.inserting_after(self.inputs[-1]):
            self.inputs.append(self.graph.placeholder(f"no_{stop.name}"))
        self.inputs[-1].meta = dict(stop.meta)
        return self.inputs[-1]

    def half(self, results: list[Any], inputs: list[Any], outputs: list[Any]) -> Half:
        """What it has become, without what nobody reads."""
        self.graph.output(tuple(results))
        for node in reversed(self.graph.nodes):
            if node.op == "call_function" and not node.users and node.target is not operator.setitem:
                self.graph.erase_node(node)
        return Half(fx.GraphModule(self.module, self.graph), list(inputs), list(outputs[: len(results)]))


FORMS: dict[Form, Callable[[Half, int], Half]] = {
    "whole": _whole,
    "below": functools.partial(_cut, between=False),
    "between": functools.partial(_cut, between=True),
}
