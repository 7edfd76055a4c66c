"""A joint graph and a cut become two graph modules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from jitney._util.lazy_graph_module import LazyGraphModule
from jitney.aot.partition.cost import has_effect, read_once
from jitney.aot.partition.min_cut import Partition
from jitney.aot.trace.joint import Joint
from jitney.aot.trace.results import ancestors


@dataclass
class Half:
    """One graph as a backend gets it: functional, flat inputs, one tuple as output.

    Args:
        module: the graph.
        inputs: FakeTensors and symbols, one per placeholder.
        outputs: FakeTensors, symbols and numbers, one per output.
        stops: of a backward graph, for each of its last outputs, which are the whole gradients of intermediates, the
            position of its own among the tangents, None without one.
    """

    module: fx.GraphModule
    inputs: list[Any]
    outputs: list[Any]
    stops: tuple[int | None, ...] = ()


@dataclass
class Saved:
    """Where the forward finds what it hands to the backward: among its ``input``s or its ``output``s."""

    source: str
    at: int
    tensor: bool


def keep_old_values(joint: Joint, cut: Partition) -> None:
    """What the backward reads of inputs that the program overwrites is saved as a copy."""
    overwritten = {joint.input_node(u.input) for u in joint.updates if u.at is not None}
    for at, node in enumerate(cut.saved):
        if node not in overwritten:
            continue
        with joint.graph.inserting_before(next(n for n in joint.graph.nodes if n.op != "placeholder")):
            old = joint.graph.call_function(torch.ops.aten.clone.default, (node,))
        old.meta.update(node.meta)
        for user in cut.backward:
            user.replace_input_with(node, old)
        joint.gradients = [old if g is node else g for g in joint.gradients]
        cut.saved[at] = old


def forward_half(joint: Joint, saved: Sequence[fx.Node]) -> tuple[Half, list[Saved]]:
    """The graph that computes the results and what is to be saved, and where the latter is."""
    inputs = {node: i for i, node in enumerate(joint.inputs)}
    outputs = list(joint.outputs)
    at: dict[Any, int] = {}
    for i, node in enumerate(outputs):
        at.setdefault(node, i)
    where = []
    for node in saved:
        tensor = isinstance(node.meta["val"], torch.Tensor)
        if node in inputs:
            where.append(Saved("input", inputs[node], tensor))
            continue
        if node not in at:
            at[node] = len(outputs)
            outputs.append(node)
        where.append(Saved("output", at[node], tensor))
    return _half(joint, joint.inputs, outputs, _forward_order(joint)), where


def _forward_order(joint: Joint) -> list[fx.Node]:
    """Nodes in the order of the program; what was first computed in the backward comes right after what it is made of.

    So it is computed together with that, and equal layers stay equal.
    """
    tangents = set(joint.tangents.values())
    timed = read_once(joint.graph)
    places: dict[fx.Node, int] = {}
    for number, node in enumerate(joint.graph.nodes):
        moves = node.meta.get("phase") == "backward" and node.op == "call_function" and not has_effect(node)
        moves = moves and node not in timed  # else it would read what is written to in between
        places[node] = max((places[n] for n in node.all_input_nodes), default=number) if moves else number
    return sorted((n for n in joint.graph.nodes if n not in tangents), key=places.__getitem__)


def backward_half(joint: Joint, cut: Partition) -> Half:
    """The graph that computes the gradients, as it is stored; see ``backward_forms``.

    What is computed again comes right before its first use.
    """
    given = [*cut.saved, *joint.tangents.values()]
    have = set(given)
    order: list[fx.Node] = []

    def emit(node: fx.Node) -> None:
        todo = [node]
        while todo:
            last = todo[-1]
            missing = [a for a in last.all_input_nodes if a not in have]
            if last in have:
                todo.pop()
            elif missing:
                todo.extend(reversed(missing))
            else:
                have.add(last)
                order.append(last)
                todo.pop()

    for node in joint.graph.nodes:
        if node in cut.backward and node.meta.get("phase") == "backward":
            emit(node)
    gradients = [n for n in joint.late if n is not None]
    for node in gradients:
        emit(node)
    made = _half(joint, given, gradients, order)
    places = {at: place for place, at in enumerate(joint.tangents)}
    made.stops = tuple(None if i.at is None else places[i.at] for i in joint.intermediates)
    return made


def _half(joint: Joint, given: Iterable[fx.Node], outputs: Sequence[Any], order: Iterable[fx.Node]) -> Half:
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    given = list(given)
    for node in given:
        made[node] = graph.placeholder(node.name)
        made[node].meta.update(node.meta)
    needed = _needed(outputs, set(given), joint)
    constants: dict[str, torch.Tensor] = {}
    for node in order:
        if node in made or node not in needed:
            continue
        made[node] = graph.node_copy(node, made.__getitem__)
        if node.op == "get_attr":
            constants[str(node.target)] = joint.constants[str(node.target)]
    graph.output(tuple(made[n] if isinstance(n, fx.Node) else n for n in outputs))
    root = torch.nn.Module()
    for name, value in constants.items():
        root.register_buffer(name, value, persistent=False)
    values = [n.meta["val"] if isinstance(n, fx.Node) else n for n in outputs]
    return Half(LazyGraphModule(root, graph), [n.meta["val"] for n in given], values)


def _needed(outputs: Sequence[Any], given: set[fx.Node], joint: Joint) -> set[fx.Node]:
    backward = bool(given & set(joint.tangents.values()))
    effects = [n for n in joint.graph.nodes if has_effect(n) and (n.meta.get("phase") == "backward") is backward]
    return ancestors([*outputs, *effects], given)
