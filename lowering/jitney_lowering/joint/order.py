"""In which order products and sums are in a joint graph, and which of them may be joined."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from jitney_lowering.graph_nodes import is_strided, ordered_nodes
from jitney_lowering.rules.views import VIEWS

aten = torch.ops.aten
MM, ADDMM, SUM = aten.mm.default, aten.addmm.default, aten.sum.dim_IntList


class Order:
    """Where products and sums of rows are in a joint graph.

    A backward may be asked for a part of its gradients: by some tangents only, or up to an intermediate result, whose
    gradient is an ``alias``. What is joined needs the same of them. What has effects, such as drawing random numbers,
    comes as it came.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.effects = ordered_nodes(graph)
        self.parts: dict[fx.Node, Hashable] = {}
        self.places: dict[fx.Node, int] = {}
        ways: dict[fx.Node, int] = {}
        bits = itertools.count()
        for at, node in enumerate(graph.nodes):
            phase = node.meta.get("phase")
            way = 0
            for argument in node.all_input_nodes:
                way |= ways[argument]
            if phase == "backward" and (node.op == "placeholder" or node.target is aten.alias.default):
                way |= 1 << next(bits)
            ways[node] = way
            if node.target not in (MM, ADDMM, SUM) or node in self.effects:
                continue
            if all(is_strided(n.meta["val"]) for n in node.all_input_nodes):
                self.parts[node] = (phase, node.meta.get("checkpoint"), way)
                self.places[node] = -at if phase == "backward" else at  # steps are gone back there

    def part(self, node: fx.Node) -> Hashable:
        """The half of the graph, what of it is computed again together, and by which ways gradients come."""
        return self.parts[node]

    def of(self, node: fx.Node, *targets: Any) -> bool:
        """Is it one of these operators, and may be joined to others?"""
        return node in self.parts and node.target in targets

    def sorted(self, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """In the order of the program's steps."""
        return sorted(nodes, key=self.places.__getitem__)

    def after(self, graph: fx.Graph) -> Iterator[tuple[fx.Node, list[fx.Node]]]:
        """Each node, and what has to come before it: what it reads, and the effect before it if it is one."""
        effect: list[fx.Node] = []
        for node in graph.nodes:
            yield node, node.all_input_nodes + (effect if node in self.effects else [])
            if node in self.effects:
                effect = [node]

    def value(self, argument: Any) -> Hashable:
        """Equal for nodes that give the same, as far as they are views of a node or have its elements in another type.

        What is read before and after a write is not the same.
        """
        if isinstance(argument, (list, tuple)):
            return tuple(map(self.value, argument))
        if not isinstance(argument, fx.Node) or argument in self.effects:
            return argument
        if argument.target in VIEWS or argument.target is aten._to_copy.default:
            return (argument.target, self.value(argument.args), tuple(sorted(argument.kwargs.items())))
        return argument

    def restore(self, graph: fx.Graph) -> None:
        """Put nodes before those that read them, and change their order no further than that."""
        before = dict(self.after(graph))
        done: set[fx.Node] = set()
        order: list[fx.Node] = []
        for node in before:
            waiting = [node]
            while waiting:
                latest = waiting[-1]
                missing = [earlier for earlier in before[latest] if earlier not in done]
                if missing:
                    waiting += reversed(missing)
                    continue
                waiting.pop()
                if latest not in done:
                    done.add(latest)
                    order.append(latest)
        for one, other in itertools.pairwise(order):
            one.append(other)
