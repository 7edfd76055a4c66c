"""Operators that a pass adds to a functional graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from jitney.aot.trace.tracer import AtenTracer


def insert_traced(
    before: fx.Node,
    compute: Callable[..., Tensor | None],
    tensors: Sequence[fx.Node],
    decompositions: Mapping[Any, Callable[..., Any]],
    fits: Callable[[Tensor], bool],
) -> fx.Node | None:
    """Add what a function computes of nodes' values to a graph, in operators that the graph's backend takes.

    Args:
        before: where the operators go; all that is known of them besides their values is what is known of this node.
        compute: called with stand-ins; None if it has no result.
        tensors: its arguments: nodes whose values are stand-ins.
        decompositions: operators to be taken apart, as for the rest of the graph.
        fits: is this stand-in a result that is wanted?

    Returns the node of the result; None, and nothing was added, without one that fits.

    Raises:
        NotSplit: one of the decompositions writes in place; nothing was added.
    """
    mode = tensors[0].meta["val"].fake_mode
    tracer = AtenTracer(mode, decompositions)
    values = [node.meta["val"] for node in tensors]
    arguments = [tracer.placeholder(f"argument{n}", value) for n, value in enumerate(values)]
    with torch.no_grad(), mode, tracer:
        result = compute(*values)
    if result is None or not fits(result):
        return None
    copies = dict(zip(arguments, tensors, strict=True))
    made = tracer.nodes[id(result)]
    wanted = {made}
    for node in reversed(tracer.graph.nodes):
        if node in wanted:
            wanted.update(node.all_input_nodes)
    with before.graph.inserting_before(before):
        for node in tracer.graph.nodes:
            if node in wanted and node not in copies:
                copy = before.graph.node_copy(node, copies.__getitem__)
                copy.meta = {**before.meta, "val": node.meta["val"]}
                copies[node] = copy
    return copies[made]
