"""Minimum cuts of networks that fall into parts, as those of models with layers do: each part has a cut of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import fx

SOURCE, SINK = "source", "sink"

# The source, the sink, or before (0) and after (1) the edge that stands for a node.
Vertex = tuple[fx.Node, int] | str
Edge = tuple[Vertex, Vertex, float]  # from, to, capacity


def minimum_cut(edges: Sequence[Edge]) -> set[fx.Node]:
    """The nodes whose edges are in the cheapest cut; of such that cost the same the one nearest to the sink."""
    import networkx as nx  # a tenth of a second, which graphs without a backward do without

    cut: set[fx.Node] = set()
    for part in _parts(edges):
        ends = {vertex for edge in part for vertex in edge[:2]}
        if SOURCE not in ends or SINK not in ends:
            continue
        network = nx.DiGraph()
        for start, end, capacity in part:
            network.add_edge(start, end, **({} if math.isinf(capacity) else {"capacity": capacity}))
        _, (early, _) = nx.minimum_cut(network, SOURCE, SINK, flow_func=nx.algorithms.flow.boykov_kolmogorov)
        nodes = [vertex[0] for vertex in ends if isinstance(vertex, tuple)]
        cut.update(node for node in nodes if (node, 0) in early and (node, 1) in ends and (node, 1) not in early)
    return cut


def _parts(edges: Sequence[Edge]) -> list[list[Edge]]:
    """Edges that hang together, but for the source and the sink."""
    from networkx.utils import UnionFind

    joined = UnionFind()
    for start, end, _ in edges:
        if start != SOURCE and end != SINK:
            joined.union(start, end)
    parts: dict[Vertex, list[Edge]] = {}
    for edge in edges:
        parts.setdefault(joined[edge[0] if edge[0] != SOURCE else edge[1]], []).append(edge)
    return list(parts.values())
