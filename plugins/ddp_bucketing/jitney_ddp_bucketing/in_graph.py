"""Mode ``in_graph``: collectives as operators of the backward graph, each started right after its last gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from jitney.backends import CompileRequest
from jitney_ddp_bucketing.private import collectives

aten = torch.ops.aten


@dataclass(frozen=True)
class Slot:
    """A parameter's place in a bucket.

    Args:
        input: which input of the captured graph the parameter is.
        shape: its sizes.
        order: its dimensions as they lie in memory, the outermost first.
        dtype: its dtype, and its gradient's.
        device: where it is.
    """

    input: int
    shape: tuple[int, ...]
    order: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, at: int, parameter: torch.Tensor) -> Slot:
        """Of a parameter that is the graph's input ``at``."""
        strides = parameter.stride()
        order = tuple(sorted(range(parameter.dim()), key=lambda d: (-strides[d], d)))
        if not parameter.permute(order).is_contiguous():  # not dense: autograd wants a contiguous gradient
            order = tuple(range(parameter.dim()))
        return cls(at, tuple(parameter.shape), order, parameter.dtype, parameter.device)

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Variant:
    """The form of a backward that reduces what it computes.

    Args:
        buckets: in the order in which they are reduced, on all ranks the same.
        group: the name of the process group.
        scale: what gradients are multiplied with before they are summed up: one by the number of ranks.
    """

    buckets: tuple[tuple[Slot, ...], ...]
    group: str
    scale: float


def with_collectives(graph: fx.GraphModule, request: CompileRequest, variant: Variant) -> fx.GraphModule:
    """The backward graph with its gradients averaged over the ranks.

    What a bucket needs comes before what only later buckets need; its all-reduce follows its last gradient; all waits
    are at the end. Numbers are those of DDP's reducer: scaled, then summed. A parameter without a gradient adds zeros.

    Args:
        graph: a backward; FakeTensors in ``meta["val"]``.
        request: says whose gradient each output is.
        variant: the buckets.
    """
    output = next(iter(reversed(graph.graph.nodes)))
    returned: list[Any] = list(output.args[0])
    position = {given: at for at, given in enumerate(request.gradients)}
    wanted = [[returned[position[slot.input]] for slot in bucket] for bucket in variant.buckets]
    order = _order(graph.graph, wanted)
    build = _Builder(fx.Graph(), _fake_mode(graph.graph))
    made = build.made
    pending = list(zip(variant.buckets, wanted, strict=True))
    started: list[tuple[tuple[Slot, ...], fx.Node]] = []
    for node in order:
        if node.op != "placeholder":
            _start(build, pending, started, variant)
        made[node] = build.graph.node_copy(node, made.__getitem__)
    _start(build, pending, started, variant)
    request.tell("DDP collectives", _places(build.graph, [reduced for _, reduced in started]))
    for bucket, reduced in started:
        done = build.call(collectives().wait_tensor.default, reduced)
        for slot, gradient in zip(bucket, _parts(build, done, bucket), strict=True):
            returned[position[slot.input]] = gradient
    build.graph.output(tuple(made.get(n, n) if isinstance(n, fx.Node) else n for n in returned))
    return fx.GraphModule(graph, build.graph)


def _places(graph: fx.Graph, collectives: Sequence[fx.Node]) -> list[str]:
    """For each collective, how far the backward is when it starts."""
    operators = [node for node in graph.nodes if node.op == "call_function"]
    at = {node: i for i, node in enumerate(operators)}
    return [f"bucket {n}: starts after operator {at[c]} of {len(operators)}" for n, c in enumerate(collectives, 1)]


def _order(graph: fx.Graph, wanted: Sequence[Sequence[fx.Node | None]]) -> list[fx.Node]:
    """The nodes but the output, those that the first bucket needs first; otherwise as they were."""
    rank: dict[fx.Node, int] = {}
    for number, nodes in enumerate(wanted):
        todo = [n for n in nodes if n is not None]
        while todo:
            node = todo.pop()
            if node not in rank:
                rank[node] = number
                todo.extend(node.all_input_nodes)
    found: list[fx.Node] = [n for n in graph.nodes if n.op != "output"]
    last = len(wanted)
    return sorted(found, key=lambda n: -1 if n.op == "placeholder" else rank.get(n, last))


def _fake_mode(graph: fx.Graph) -> Any:
    values = (node.meta.get("val") for node in graph.nodes)
    return next(value.fake_mode for value in values if hasattr(value, "fake_mode"))


class _Builder:
    """A graph that is copied and added to."""

    def __init__(self, graph: fx.Graph, mode: Any) -> None:
        self.graph = graph
        self.mode = mode
        self.made: dict[Any, fx.Node] = {}  # node of the old graph -> its copy

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """One more operator, its result computed on stand-ins."""
        node = self.graph.call_function(target, args, kwargs)
        with self.mode, torch.no_grad():
            values = fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
            node.meta["val"] = target(*values[0], **values[1])
        node.meta.update(phase="backward", user_stack=())
        return node


def _start(
    build: _Builder,
    pending: list[tuple[tuple[Slot, ...], list[fx.Node | None]]],
    started: list[tuple[tuple[Slot, ...], fx.Node]],
    variant: Variant,
) -> None:
    """Start the collectives of the next buckets whose gradients are all there; the order is that of the buckets."""
    while pending and all(node is None or node in build.made for node in pending[0][1]):
        bucket, nodes = pending.pop(0)
        parts = []
        for slot, node in zip(bucket, nodes, strict=True):
            part = _flat(build, slot, None if node is None else build.made[node])
            parts.append(
                build.call(aten.mul.Tensor, part, variant.scale)
            )  # before, so that it takes no pass of its own
        flat = build.call(aten.cat.default, parts) if len(parts) > 1 else parts[0]
        started.append((bucket, build.call(collectives().all_reduce.default, flat, "sum", variant.group)))


def _flat(build: _Builder, slot: Slot, gradient: fx.Node | None) -> fx.Node:
    """A gradient's elements in the order in which the parameter's lie in memory."""
    if gradient is None:
        return build.call(aten.zeros.default, [slot.numel], dtype=slot.dtype, device=slot.device)
    if slot.order != tuple(range(len(slot.order))):
        gradient = build.call(aten.permute.default, gradient, list(slot.order))
    if not gradient.meta["val"].is_contiguous():
        gradient = build.call(aten.clone.default, gradient, memory_format=torch.contiguous_format)
    return build.call(aten.view.default, gradient, [slot.numel])


def _parts(build: _Builder, flat: fx.Node, bucket: Sequence[Slot]) -> list[fx.Node]:
    """A bucket's gradients, as the parameters lie in memory."""
    found = []
    begin = 0
    for slot in bucket:
        part = flat
        if len(bucket) > 1:
            part = build.call(aten.slice.Tensor, flat, 0, begin, begin + slot.numel)
        begin += slot.numel
        part = build.call(aten.view.default, part, [slot.shape[d] for d in slot.order])
        if slot.order != tuple(range(len(slot.order))):
            part = build.call(aten.permute.default, part, [slot.order.index(d) for d in range(len(slot.order))])
        found.append(part)
    return found
