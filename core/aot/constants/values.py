"""Values of a graph that depend on no input, computed while it is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import fx


def ancestors(node: fx.Node) -> dict[fx.Node, None]:
    """What a node is computed of, and itself."""
    found = {node: None}
    for each in (waiting := [node]):
        waiting += [n for n in each.all_input_nodes if n not in found]
        found |= dict.fromkeys(waiting)
    return found


def compute(
    needed: Iterable[fx.Node], constants: Mapping[str, torch.Tensor], values: dict[fx.Node, torch.Tensor]
) -> None:
    """Add the values of nodes, all of one graph, to ``values``; what they are computed of is among both."""
    missing = {n for n in needed if n not in values}
    for n in [n for n in next(iter(missing)).graph.nodes if n in missing] if missing else ():
        args, kwargs = fx.node.map_arg((n.args, n.kwargs), values.__getitem__)
        values[n] = constants[n.target] if n.op == "get_attr" else n.target(*args, **kwargs)
