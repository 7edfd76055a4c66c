"""Graphs within a graph that give every tensor that they compute: at the end, those that nobody wants are left out."""

from __future__ import annotations

import operator
from typing import Any

from torch import fx

ABUNDANT = "abundant"  # in the ``meta`` of a node: the graph that its operation runs, if that gives all its tensors


def drop_unused_results(graph: fx.Graph) -> None:
    """Leave of such an operation the results that are used, and of the operations within it likewise."""
    for node in graph.nodes:
        within: fx.GraphModule | None = node.meta.pop(ABUNDANT, None)
        if within is None:
            continue
        for look_up in list(node.users):
            if not look_up.users:
                graph.erase_node(look_up)
        look_ups = sorted(node.users, key=lambda user: user.args[1])
        assert all(user.target is operator.getitem for user in look_ups)
        wanted = [user.args[1] for user in look_ups]
        output = within.graph.output_node()
        results: Any = output.args[0]
        output.args = (tuple(results[at] for at in wanted),)
        node.meta["example_value"] = tuple(node.meta["example_value"][at] for at in wanted)
        for at, user in enumerate(look_ups):
            user.args = (node, at)
        drop_unused_results(within.graph)
        within.recompile()
