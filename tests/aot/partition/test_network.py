"""The cut of a network in parts is that of the whole."""

from __future__ import annotations

import math

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx

from jitney.aot.partition.network import SINK, SOURCE, Edge, minimum_cut

MANY = 14


def whole(edges: list[Edge]) -> set[fx.Node]:
    network = nx.DiGraph()
    network.add_nodes_from((SOURCE, SINK))
    for start, end, capacity in edges:
        network.add_edge(start, end, **({} if math.isinf(capacity) else {"capacity": capacity}))
    _, (early, _) = nx.minimum_cut(network, SOURCE, SINK)
    nodes = {vertex[0] for edge in edges for vertex in edge[:2] if isinstance(vertex, tuple)}
    return {n for n in nodes if (n, 0) in early and (n, 1) not in early}


def nodes() -> list[fx.Node]:
    graph = fx.Graph()
    return [graph.placeholder(f"n{number}") for number in range(MANY)]


@settings(max_examples=200, deadline=None)
@given(
    weights=st.lists(st.integers(1, 9), min_size=MANY, max_size=MANY),
    links=st.sets(st.tuples(st.integers(0, MANY - 1), st.integers(0, MANY - 1)), max_size=20),
    first=st.sets(st.integers(0, MANY - 1)),
    last=st.sets(st.integers(0, MANY - 1)),
)
def test_networks_in_parts(weights: list[int], links: set[tuple[int, int]], first: set[int], last: set[int]) -> None:
    every = nodes()
    edges: list[Edge] = [((node, 0), (node, 1), weight) for node, weight in zip(every, weights, strict=True)]
    edges += [((every[a], 1), (every[b], 0), math.inf) for a, b in links if a < b]
    edges += [(SOURCE, (every[n], 0), math.inf) for n in first]
    edges += [((every[n], 1), SINK, math.inf) for n in last]
    assert minimum_cut(edges) == whole(edges)


def test_a_row_of_layers_is_cut_layer_by_layer() -> None:
    edges: list[Edge] = []
    every = nodes()
    for first, second in zip(every[::2], every[1::2], strict=True):
        edges += [(SOURCE, (first, 0), math.inf), ((first, 0), (first, 1), 3), ((first, 1), (second, 0), math.inf)]
        edges += [((second, 0), (second, 1), 2), ((second, 1), SINK, math.inf)]
    assert minimum_cut(edges) == {*every[1::2]}
