"""Operations whose sizes depend on data: a graph is cut around them, and may hold them where that costs little."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from jitney.aot.trace.sizes import unknown
from jitney.backends import Argument, BoundBackend
from jitney.backends.registry import registry
from jitney.capture.codegen.graph_runner import runs_eagerly
from jitney.graph_compile.branches import FEWEST
from jitney.graph_compile.masked_writes import without_masked_writes
from jitney.graph_compile.subgraphs import cut, places_of
from jitney.torch_compat import torch_private

ASSERT = torch.ops.aten._assert_scalar.default


def is_eager(node: fx.Node) -> bool:
    """Is it an operation that looks at the values of tensors, or runs as it is? ATen graphs cannot hold such."""
    return "opaque" in node.meta or (node.op == "call_function" and runs_eagerly(node.target))


def _takes_out(node: fx.Node) -> bool:
    """Is it one of several results of an operation?"""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and isinstance(source.meta.get("example_value"), (tuple, list))


def makes_size(node: fx.Node) -> bool:
    """Has its result a size that depends on data, and that no argument has?"""
    return "data_sizes" in node.meta or bool(_unbacked(node) - set().union(*map(_unbacked, node.all_input_nodes)))


def _unbacked(node: fx.Node) -> set[Any]:
    value = node.meta.get("example_value")
    values = value if isinstance(value, (tuple, list)) else (value,)
    sizes = [n for v in values for n in (v.shape if isinstance(v, torch.Tensor) else (v,)) if type(n) is torch.SymInt]
    return set().union(*map(torch_private.data_symbols, sizes))


def around_captured(graph: fx.GraphModule, at: Sequence[fx.Node], places: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes before which to cut: as wanted, and around operations that run as they were captured.

    Those are each operation that runs eagerly, operations that make sizes which depend on data, and a few others beside
    them. What computes with such sizes is in pieces of its own, which are compiled when they first run.
    """
    kinds: dict[fx.Node, str] = {}
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if _takes_out(node) and node.args[0] in kinds:
            kinds[node] = kinds[node.args[0]]
        else:
            kinds[node] = _kind(node)
    nodes = [*kinds]
    for few, beside in (("plain", "unknown"), ("unknown", "data"), ("plain", "data")):
        _join(kinds, few, beside)
    wanted = set(at)
    for node, previous in zip(nodes[1:], nodes, strict=False):
        one = kinds[node] == "eager" and not _takes_out(node)
        if one or kinds[node] != kinds[previous]:
            wanted.add(node)
    if nodes and kinds[nodes[0]] == "eager":
        wanted.add(nodes[0])
    return [node for node in places if node in wanted]


def _kind(node: fx.Node) -> str:
    if is_eager(node):
        return "eager"
    if makes_size(node) or node.target is ASSERT:
        return "data"
    return "unknown" if unknown(node) or any(map(unknown, node.all_input_nodes)) else "plain"


def _join(kinds: dict[fx.Node, str], few: str, beside: str) -> None:
    """Operations of one kind that are too few for a call go with neighbours of another kind."""
    runs = [(kind, [*run]) for kind, run in itertools.groupby(kinds, kinds.__getitem__)]
    for number, (kind, run) in enumerate(runs):
        around = {k for k, _ in (*runs[max(number - 1, 0) : number], *runs[number + 1 : number + 2])}
        if kind == few and beside in around and len(run) < FEWEST:
            kinds.update(dict.fromkeys(run, beside))


def is_sized(graph: fx.GraphModule) -> bool:
    """Can this piece be compiled when it runs: does it compute with sizes that depend on data, and make none?"""
    nodes = [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]
    if not any(map(unknown, graph.graph.nodes)) or not all(map(_is_sized, nodes)):
        return False
    values = [node.meta.get("example_value") for node in graph.graph.find_nodes(op="placeholder")]
    kinds = {type(value) for value in values}
    return torch_private.FakeTensor in kinds and kinds <= {torch_private.FakeTensor, torch.SymInt}


def _is_sized(node: fx.Node) -> bool:
    special = node.op == "get_attr" or {"changes_state", "checkpoint"} & node.meta.keys()
    return not special and _kind(node) not in ("eager", "data")


def takes_data_sizes(backend: BoundBackend, graph: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Is a graph with sizes that depend on data better than a graph break at each operation that makes one?

    For ATen backends it is where hardly anything else runs as captured for it. A graph that cannot be cut does.
    """
    if registry.changes_graphs():  # an extension that knows nothing of such sizes
        return False
    if backend.backend.level != "aten":
        return backend.backend.data_sizes
    graph = without_masked_writes(graph)
    arguments = tuple(Argument(node.name) for node in graph.graph.find_nodes(op="placeholder"))
    pieces = cut(graph, inputs, arguments, around_captured(graph, (), places_of(graph, inputs)))
    as_captured = [p.module for p in pieces if any(map(_depends, p.module.graph.nodes)) and not is_sized(p.module)]
    nodes = [node for piece in as_captured for node in piece.graph.nodes if node.op not in ("placeholder", "output")]
    return sum(_kind(node) != "data" and not _takes_out(node) and not _is_number(node) for node in nodes) < FEWEST


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), (torch.SymInt, torch.SymBool, torch.SymFloat))


def _depends(node: fx.Node) -> bool:
    return bool(unknown(node))
