"""A backward graph as JSON, from which a later process compiles it when a backward is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from jitney.aot.partition.split import Half
from jitney.aot.trace.size_serialization import Sizes, described
from jitney.aot.trace.sizes import is_symbolic
from jitney.cache.digest import NotStorable
from jitney.cache.recipes import Reader, Stale, Writer


def write_half(half: Half, saved: int) -> tuple[str, list[bytes]]:
    """The graph as text with the number of saved values among its inputs, and the bytes that belong to it.

    Raises:
        NotStorable: something in it has no recipe.
    """
    names = {node: f"%{i}" for i, node in enumerate(half.module.graph.nodes)}
    writer = Writer(known={name: node for node, name in names.items()})
    rows: list[Any] = []
    for node in half.module.graph.nodes:
        if node.op == "output":
            rows.append(["output", writer.ref(_plain(node.args[0]))])
            continue
        row = [node.op, node.name, writer.ref(_plain(node.meta.get("val"), stand_in=True))]
        if node.op == "call_function":
            row += [writer.ref(node.target), writer.ref(_plain(node.args)), writer.ref(_plain(node.kwargs))]
        elif node.op == "get_attr":
            row += [node.target, writer.ref(getattr(half.module, str(node.target)).detach())]
        elif node.op != "placeholder":
            raise NotStorable(f"a {node.op} in a backward graph")
        rows.append(row)
    outputs = writer.ref(_plain(half.outputs, stand_in=True))
    return json.dumps({"rows": rows, "objects": writer.objects, "outputs": outputs, "saved": saved}), writer.blobs


class _Fake:
    """Stands for a FakeTensor: its facts."""

    def __init__(self, tensor: torch.Tensor) -> None:
        size, stride = (
            tuple([_Size(n) if is_symbolic(n) else n for n in sizes]) for sizes in (tensor.shape, tensor.stride())
        )
        self.facts = (size, stride, tensor.dtype, tensor.device, tensor.requires_grad)

    def _jitney_recipe(self, writer: Writer) -> list[Any]:
        return ["fake", *writer.refs(self.facts)]


class _Size:
    """Stands for a symbolic size."""

    def __init__(self, size: Any) -> None:
        self.text = described(size)

    def _jitney_recipe(self, writer: Writer) -> list[Any]:
        return ["symbolic", self.text]


def _plain(value: Any, stand_in: bool = False) -> Any:
    """FX's own lists and dictionaries as plain ones; with ``stand_in``, tensors as their facts."""
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        items = [_plain(v, stand_in) for v in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {k: _plain(v, stand_in) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*[_plain(v) for v in (value.start, value.stop, value.step)])
    if is_symbolic(value):
        return _Size(value)
    return _Fake(value) if stand_in and isinstance(value, torch.Tensor) else value


def read_half(text: str, blobs: Sequence[bytes]) -> tuple[Half, int]:
    """The graph again, with FakeTensors, and how many of its inputs are saved values.

    Raises:
        Stale: an operator is not there any more.
    """
    data = json.loads(text)
    graph, root, sizes = fx.Graph(), torch.nn.Module(), Sizes()
    nodes: dict[str, fx.Node] = {}

    def fake(reader: Reader, *numbers: int) -> torch.Tensor:
        size, stride, dtype, device, grad = reader.make_all(numbers)
        with sizes.mode:
            made = torch.empty_strided(size, stride, dtype=dtype, device=device)
        return made.requires_grad_(grad) if grad else made

    kinds = {"fake": fake, "symbolic": lambda reader, text: sizes.make(text)}
    reader = Reader(data["objects"], blobs, nodes, kinds)
    for number, (op, *row) in enumerate(data["rows"]):
        if op == "output":
            graph.output(reader.make(row[0]))
            continue
        node = _node(graph, root, op, row, reader)
        node.meta["val"] = reader.make(row[1])
        nodes[f"%{number}"] = node
    inputs = [node.meta["val"] for node in graph.nodes if node.op == "placeholder"]
    return Half(fx.GraphModule(root, graph), inputs, list(reader.make(data["outputs"]))), int(data["saved"])


def _node(graph: fx.Graph, root: torch.nn.Module, op: str, row: Sequence[Any], reader: Reader) -> fx.Node:
    name = row[0]
    if op == "placeholder":
        return graph.placeholder(name)
    if op == "get_attr":
        root.register_buffer(row[2], reader.make(row[3]), persistent=False)
        return graph.create_node("get_attr", row[2], name=name)
    if op != "call_function":
        raise Stale(f"a node of the kind {op}")
    target, args, kwargs = reader.make_all(row[2:5])
    assert isinstance(kwargs, Mapping)
    return graph.create_node("call_function", target, args, dict(kwargs), name)
