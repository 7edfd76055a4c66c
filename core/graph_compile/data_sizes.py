"""Operations whose sizes depend on data: a graph is cut around them, and may hold them where that costs little."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

from torch import fx

from jitney.aot.trace.sizes import unknown
from jitney.backends import BoundBackend
from jitney.backends.registry import registry
from jitney.capture.codegen.graph_runner import runs_eagerly
from jitney.graph_compile.branches import FEWEST
from jitney.graph_compile.subgraphs import places_of

MOST = 16  # operations that run as captured, in a graph that nobody has asked to hold such sizes


def is_eager(node: fx.Node) -> bool:
    """Is it an operation that looks at the values of tensors, or runs as it is? ATen graphs cannot hold such."""
    return "opaque" in node.meta or (node.op == "call_function" and runs_eagerly(node.target))


def _takes_out(node: fx.Node) -> bool:
    """Is it one of several results of an operation?"""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and isinstance(source.meta.get("example_value"), (tuple, list))


def around_captured(graph: fx.GraphModule, at: Sequence[fx.Node], places: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes before which to cut: as wanted, and around operations that run as they were captured.

    Those are each operation that runs eagerly, and neighbours whose sizes depend on data, or that come in between.
    """
    kinds: dict[fx.Node, str] = {}
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if _takes_out(node) and node.args[0] in kinds:
            kinds[node] = kinds[node.args[0]]
        else:
            depends = unknown(node) or any(map(unknown, node.all_input_nodes))
            kinds[node] = "eager" if is_eager(node) else "unknown" if depends else "plain"
    nodes = [*kinds]
    runs = [(kind, [*run]) for kind, run in itertools.groupby(nodes, kinds.__getitem__)]
    for number, (kind, run) in enumerate(runs):
        beside = {k for k, _ in (*runs[max(number - 1, 0) : number], *runs[number + 1 : number + 2])}
        if kind == "plain" and "unknown" in beside and len(run) < FEWEST:
            kinds.update(dict.fromkeys(run, "unknown"))
    wanted = set(at)
    for node, previous in zip(nodes[1:], nodes, strict=False):
        one = kinds[node] == "eager" and not _takes_out(node)
        if one or kinds[node] != kinds[previous]:
            wanted.add(node)
    if nodes and kinds[nodes[0]] == "eager":
        wanted.add(nodes[0])
    return [node for node in places if node in wanted]


def takes_data_sizes(backend: BoundBackend, graph: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Is a graph with sizes that depend on data better than a graph break at each operation that makes one?

    For ATen backends it is where few operations run as captured for it. A graph that cannot be cut runs so as a whole.
    """
    if registry.changes_graphs():  # an extension that knows nothing of such sizes
        return False
    if backend.backend.level != "aten":
        return backend.backend.data_sizes
    nodes = [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]
    at = around_captured(graph, (), places_of(graph, inputs))
    pieces: list[list[fx.Node]] = [[]]
    for node in nodes:
        if node in at:
            pieces.append([])
        pieces[-1].append(node)
    as_captured = [piece for piece in pieces if any(map(unknown, piece))]
    return sum(not _takes_out(node) for piece in as_captured for node in piece) <= MOST
