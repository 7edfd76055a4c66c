"""Checkpointed regions of a graph that goes back over itself: what the way back reads of them is computed again.

Where forward and backward are graphs of their own the cut does that (``min_cut.py``). In a whole training step both are
in one graph: each region's operators that the way back needs are there twice, the second time right before they are
read, so that nothing of the region is kept meanwhile. Random operators run once, as everywhere.
"""

from __future__ import annotations

from torch import fx

from jitney.aot.partition.cost import has_effect, is_random
from jitney.aot.trace.joint import Joint
from jitney.aot.trace.tracer import GOES_BACK


def compute_regions_again(joint: Joint) -> None:
    """Let what goes back over checkpointed regions read copies of their operators."""
    regions: dict[int, list[fx.Node]] = {}
    for node in joint.graph.nodes:
        region = node.meta.get("checkpoint")
        if region is not None and GOES_BACK not in node.meta:
            regions.setdefault(region, []).append(node)
    outputs = {n for n in joint.outputs if isinstance(n, fx.Node)}
    for region, nodes in regions.items():
        _compute_again(joint.graph, region, nodes, outputs)


def _compute_again(graph: fx.Graph, region: int, nodes: list[fx.Node], outputs: set[fx.Node]) -> None:
    inside = set(nodes)

    def is_kept(node: fx.Node) -> bool:
        """Is it a result of the region, or must it not run twice?"""
        leaves = node in outputs or any(u not in inside and GOES_BACK not in u.meta for u in node.users)
        return leaves or is_random(node) or has_effect(node) or node.op != "call_function"

    wanted = {n for n in nodes if not is_kept(n) and any(GOES_BACK in u.meta for u in n.users)}
    late = [u for n in wanted for u in n.users if GOES_BACK in u.meta]
    if not late:
        return
    todo, needed = list(wanted), set[fx.Node]()
    while todo:
        node = todo.pop()
        if node in inside and node not in needed and not is_kept(node):
            needed.add(node)
            todo += node.all_input_nodes
    order = {node: n for n, node in enumerate(graph.nodes)}
    copies: dict[fx.Node, fx.Node] = {}
    with graph.inserting_before(min(late, key=order.__getitem__)):
        for node in nodes:
            if node in needed:
                copies[node] = graph.node_copy(node, lambda n: copies.get(n, n))
                copies[node].meta["checkpoint"] = -1 - region  # no operator of the region that has run before
                copies[node].meta[GOES_BACK] = True
    for node in wanted:
        for user in [u for u in node.users if GOES_BACK in u.meta and u not in copies.values()]:
            user.replace_input_with(node, copies[node])
