"""A graph that is compiled when it runs as JSON, from which a later process makes it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from jitney.cache.recipes import Reader, Recipe, Writer


def write_graph(writer: Writer, graph: fx.GraphModule, dims: Sequence[Any]) -> Recipe:
    """The recipe of a ``SizedGraph``; the reader knows what compiles it.

    Args:
        writer: of the frame's recipes.
        graph: of operations as the user called them, without attributes.
        dims: which sizes of its inputs are not known.

    Raises:
        NotStorable: something in it has no recipe.
    """
    names = {node: f"%{i}" for i, node in enumerate(graph.graph.nodes)}
    inner = Writer(known={name: node for node, name in names.items()})
    rows = []
    for node in graph.graph.nodes:
        given = [node.target, node.args, node.kwargs] if node.op != "placeholder" else [node.target]
        rows.append([node.op, node.name, *inner.refs([_plain(value) for value in given])])
    text = json.dumps({"rows": rows, "objects": inner.objects, "dims": dims})
    return ["sized", writer.ref(text), [writer.blob(b) for b in inner.blobs]]


def _plain(value: Any) -> Any:
    """FX's own lists and dictionaries as plain ones."""
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return slice(*map(_plain, (value.start, value.stop, value.step))) if isinstance(value, slice) else value


def read_graph(text: str, blobs: Sequence[bytes]) -> tuple[fx.GraphModule, list[Any]]:
    """The graph again, and which sizes of its inputs are not known.

    Raises:
        Stale: an operation is not there any more.
    """
    data = json.loads(text)
    graph = fx.Graph()
    nodes: dict[str, fx.Node] = {}
    reader = Reader(data["objects"], blobs, nodes, {})
    for number, (op, name, *row) in enumerate(data["rows"]):
        target, args, kwargs = (*reader.make_all(row), (), {})[:3]
        nodes[f"%{number}"] = graph.create_node(op, target, args, kwargs, name)
    return fx.GraphModule(torch.nn.Module(), graph), data["dims"]
