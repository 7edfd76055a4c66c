"""Nodes in the place of another one, in a graph whose nodes have FakeTensors in ``meta["val"]``."""

from __future__ import annotations

from typing import Any

from torch import fx


class Writer:
    """Writes nodes before one that they replace.

    Args:
        graph: is changed.
        before: the node, of a tensor at least; what it has in ``meta`` the new ones get.
    """

    def __init__(self, graph: fx.Graph, before: fx.Node) -> None:
        self.graph = graph
        self.before = before
        self.mode: Any = before.all_input_nodes[0].meta["val"].fake_mode

    def __call__(self, target: Any, *args: Any, **options: Any) -> fx.Node:
        with self.graph.inserting_before(self.before):
            node = self.graph.call_function(target, args, options)
        node.meta = {name: value for name, value in self.before.meta.items() if name != "val"}
        with self.mode:
            node.meta["val"] = target(*fx.map_arg(args, lambda a: a.meta["val"]), **options)
        return node
