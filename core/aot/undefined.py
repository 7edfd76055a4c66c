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

from jitney.aot.sizes import SizeNodes, is_symbolic
from jitney.aot.split import Half

aten = torch.ops.aten


def without(half: Half, saved: int, absent: Collection[int]) -> Half:
    """The backward graph without some tangents; missing gradients are None.

    Args:
        half: a backward graph.
        saved: how many of its inputs are saved values; the others are tangents.
        absent: positions among the tangents.
    """
    graph = fx.Graph()
    made: dict[fx.Node, Any] = {}
    missing: set[fx.Node] = set()
    zeros: dict[fx.Node, fx.Node] = {}
    sizes = SizeNodes(graph)
    dependent: set[fx.Node] = set()
    placeholders = [n for n in half.module.graph.nodes if n.op == "placeholder"]
    tangents = set(placeholders[saved:])
    missing.update(placeholders[saved + i] for i in absent)

    def value(node: fx.Node) -> fx.Node:
        """A missing value that an operator needs beside others is zero."""
        if node not in missing:
            return made[node]
        if node not in zeros:
            fake = node.meta["val"]
            if sizes.at is None:
                for given in placeholders:
                    if given in made:
                        sizes.at = made[given]
                        sizes.add(made[given], given.meta["val"])
            size = [sizes.node(s) if is_symbolic(s) else s for s in fake.shape]
            facts = {"dtype": fake.dtype, "device": fake.device}
            zeros[node] = graph.call_function(aten.zeros.default, (size,), facts)
            zeros[node].meta.update(node.meta)
        return zeros[node]

    for node in half.module.graph.nodes:
        if node.op == "placeholder":
            if node not in missing:
                made[node] = graph.placeholder(node.name)
                made[node].meta.update(node.meta)
            if node in tangents:
                dependent.add(node)
            continue
        if node.op == "output":
            outputs = tuple(None if n in missing else made[n] if isinstance(n, fx.Node) else n for n in node.args[0])
            graph.output(outputs)
            break
        from_outside = [a for a in node.all_input_nodes if a in dependent]
        if from_outside:
            dependent.add(node)
            if all(a in missing for a in from_outside):
                missing.add(node)
                continue
        alone = _the_other(node, missing) if any(a in missing for a in from_outside) else None
        if alone is not None:
            made[node] = made[alone]
            continue
        made[node] = graph.node_copy(node, value)
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and node.target is not operator.setitem:
            graph.erase_node(node)
    returned: Any = graph.output_node().args[0]
    values = [None if n is None else v for n, v in zip(returned, half.outputs, strict=True)]
    kept = [v for i, v in enumerate(half.inputs) if i - saved not in absent]
    return Half(fx.GraphModule(half.module, graph), kept, values)


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
