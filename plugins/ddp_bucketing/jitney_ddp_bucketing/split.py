"""Mode ``split``: where a captured graph is cut, so that each piece's backward fires DDP's hooks of one bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from jitney_ddp_bucketing.buckets import Item


@dataclass(frozen=True)
class Cuts:
    """A graph in pieces.

    Args:
        before: the nodes before which it is cut, in order.
        rows: for each piece, that of the last operations first (as gradients come): its parameters and its operations.
    """

    before: list[fx.Node]
    rows: list[tuple[list[Item], int]]


def cuts(graph: fx.Graph, parameters: Mapping[fx.Node, Item], places: Sequence[fx.Node], limits: Sequence[int]) -> Cuts:
    """Cut a graph into pieces whose parameters fill a bucket each, from the last operation to the first.

    A parameter that is used several times belongs to the piece of its first use: only then is its gradient complete. A
    piece goes on to the next place where the graph may be cut; what has no parameter before it is not cut off.

    Args:
        graph: as captured.
        parameters: which placeholders are parameters that DDP reduces.
        places: the nodes before which it may be cut.
        limits: bytes of the first bucket, the second...
    """
    operations = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    first_use: dict[fx.Node, list[Item]] = {}
    position = {node: i for i, node in enumerate(operations)}
    for node, item in parameters.items():
        users = [user for user in node.users if user in position]
        if users:
            first_use.setdefault(min(users, key=position.__getitem__), []).append(item)
    left = sum(map(len, first_use.values()))
    allowed = set(places)
    before: list[fx.Node] = []
    rows: list[tuple[list[Item], int]] = []
    items: list[Item] = []
    size = count = 0
    for node in reversed(operations):
        count += 1
        found = first_use.get(node, [])
        left -= len(found)
        items += found
        size += sum(item.nbytes for item in found)
        full = bool(items) and size >= limits[min(len(rows), len(limits) - 1)]
        if full and left and node in allowed:
            before.append(node)
            rows.append((items, count))
            items, size, count = [], 0, 0
    rows.append((items, count))
    return Cuts(before[::-1], rows)
