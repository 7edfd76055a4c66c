"""The backward for calls in which some results got no gradient.

The engine gives no tensor for a result that the loss does not depend on. A gradient is linear in those from outside,
so an operator all of whose tangent-dependent inputs are missing has a missing result: nothing is computed with zeros,
which could turn an infinite derivative into NaN, and a parameter that got no gradient in eager gets none here.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from jitney._util.lazy_graph_module import LazyGraphModule
from jitney.aot.partition.split import Half
from jitney.aot.trace.sizes import SizeNodes, is_symbolic

aten = torch.ops.aten


def without(half: Half, saved: int, absent: Collection[int]) -> Half:
    """The backward graph without some tangents; missing gradients are None.

    Args:
        half: a backward graph.
        saved: how many of its inputs are saved values; the others are tangents.
        absent: positions among the tangents.
    """
    graph = _Reduced(half, saved, absent).run()
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and node.target is not operator.setitem:
            graph.erase_node(node)
    returned: Any = graph.output_node().args[0]
    values = [None if n is None else v for n, v in zip(returned, half.outputs, strict=True)]
    kept = [v for i, v in enumerate(half.inputs) if i - saved not in absent]
    return Half(LazyGraphModule(half.module, graph), kept, values)


class _Reduced:
    """Copies a backward graph node by node, without what depends on missing tangents alone."""

    def __init__(self, half: Half, saved: int, absent: Collection[int]) -> None:
        self.old: fx.Graph = half.module.graph
        self.graph = fx.Graph()
        self.made: dict[fx.Node, fx.Node] = {}  # old node -> its copy
        self.zeros: dict[fx.Node, fx.Node] = {}  # missing node -> a zero in its place
        self.sizes = SizeNodes(self.graph)
        self.placeholders = [n for n in self.old.nodes if n.op == "placeholder"]
        self.dependent = set(self.placeholders[saved:])  # on tangents
        self.missing = {self.placeholders[saved + i] for i in absent}

    def run(self) -> fx.Graph:
        """The copy."""
        for node in self.old.nodes:
            if node.op not in ("placeholder", "output"):
                self._look(node)
        needed = self._needed()
        for node in self.old.nodes:
            if node.op == "output":
                self.graph.output(tuple(self._returned(n) for n in node.args[0]))
            elif node.op != "placeholder":
                if node in needed:
                    self._operator(node)
            elif node not in self.missing:
                self.made[node] = self.graph.placeholder(node.name)
                self.made[node].meta.update(node.meta)
        return self.graph

    def _look(self, node: fx.Node) -> None:
        """Is an operator's result missing?"""
        from_outside = [a for a in node.all_input_nodes if a in self.dependent]
        if from_outside:
            self.dependent.add(node)
            if all(a in self.missing for a in from_outside):
                self.missing.add(node)

    def _needed(self) -> set[fx.Node]:
        """What the results that are there are made of."""
        output: Any = self.old.output_node().args[0]
        todo = [n for n in output if isinstance(n, fx.Node)]
        todo += self.old.find_nodes(op="call_function", target=operator.setitem)
        found: set[fx.Node] = set()
        while todo:
            node = todo.pop()
            if node not in found and node not in self.missing:
                found.add(node)
                alone = self._alone(node)
                todo += node.all_input_nodes if alone is None else [alone]
        return found

    def _alone(self, node: fx.Node) -> fx.Node | None:
        absent = any(a in self.missing for a in node.all_input_nodes)
        return _the_other(node, self.missing) if absent else None

    def _returned(self, value: Any) -> Any:
        if value in self.missing:
            return None
        return self.made[value] if isinstance(value, fx.Node) else value

    def _operator(self, node: fx.Node) -> None:
        alone = self._alone(node)
        self.made[node] = self.made[alone] if alone is not None else self.graph.node_copy(node, self._value)

    def _value(self, node: fx.Node) -> fx.Node:
        """A missing value that an operator needs beside others is zero."""
        if node not in self.missing:
            return self.made[node]
        if node not in self.zeros:
            if self.sizes.at is None:
                for given in self.placeholders:
                    if given in self.made:
                        self.sizes.at = self.made[given]
                        self.sizes.add(self.made[given], given.meta["val"])
            fake = node.meta["val"]
            size = [self.sizes.node(s) if is_symbolic(s) else s for s in fake.shape]
            facts = {"dtype": fake.dtype, "device": fake.device}
            self.zeros[node] = self.graph.call_function(aten.zeros.default, (size,), facts)
            self.zeros[node].meta.update(node.meta)
        return self.zeros[node]


def _the_other(node: fx.Node, missing: set[fx.Node]) -> fx.Node | None:
    """Of a sum with a missing summand, the other one, if it is the sum as it is."""
    if node.target is not aten.add.Tensor or len(node.args) != 2 or node.kwargs:
        return None
    first, second = node.args
    if not isinstance(first, fx.Node) or not isinstance(second, fx.Node):
        return None
    found = second if first in missing else first
    same = found.meta["val"], node.meta["val"]
    if found in missing or same[0].dtype != same[1].dtype or same[0].shape != same[1].shape:
        return None
    return found
