"""Elements that are picked by indices which are known: slices of the tensor, one after the other.

``channels[[2, 1, 0]]``, ``state[:, [0, 2, 1, 3]]``: nothing is looked up at run time, or asked whether it is an index,
and backends that fuse views go on with the slices. Gradients and writes by such indices are slices, too, if no index
comes twice.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from jitney.aot.constants.host import NUMBERS, HostValues
from jitney.torch_compat import torch_private

aten = torch.ops.aten
RUNS = 4  # slices that are put together, at most
LONGEST = 1024  # indices that are looked at
INTEGERS = (torch.int64, torch.int32)


@dataclass(frozen=True)
class Run:
    """Indices ``first``, ``first + step``, ...: ``count`` of them."""

    first: int
    step: int
    count: int

    def of(self, graph: fx.Graph, source: fx.Node, dim: int) -> fx.Node:
        """The node that is this part of a tensor, a view or a copy."""
        if self.step == 0 and self.count > 1:
            shape = [-1] * source.meta["val"].dim()
            shape[dim] = self.count
            one = Run(self.first, 1, 1).of(graph, source, dim)
            return valued(graph, aten.expand.default, one, shape)
        last = self.first + self.step * (self.count - 1)
        low, high = min(self.first, last), max(self.first, last)
        part = valued(graph, aten.slice.Tensor, source, dim, low, high + 1, abs(self.step))
        return part if self.step >= 0 else valued(graph, aten.flip.default, part, [dim])


def slice_constant_indices(graph: fx.Graph, constants: dict[str, torch.Tensor]) -> None:
    """Put slices in the place of ``index``, ``index_select`` and ``index_put`` by constant indices along one dimension.

    Args:
        graph: functional, with an output node; changed.
        constants: the graph's attributes.

    What would take more than ``RUNS`` slices stays as it is, and so does what raises.
    """
    candidates = [node for node in graph.nodes if node.target in REWRITES]
    if not candidates or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return
    host = HostValues(graph, constants)
    for node in candidates:
        # No memory, or an operator that raises: the call will tell.
        with contextlib.suppress(RuntimeError), torch_private.without_modes(), torch.no_grad():
            dim, places = _places(host, node)
            if places is not None:
                _rewrite(graph, host, node, dim, places)


def _places(host: HostValues, node: fx.Node) -> tuple[int, list[int] | None]:
    """Along which dimension the node picks which elements; None where that is not known."""
    source = node.args[0].meta["val"]  # type: ignore[union-attr] # a node
    if node.target is aten.index_select.default:
        dim, index = operator.index(node.args[1]) % max(source.dim(), 1), node.args[2]  # type: ignore[arg-type]
    else:
        given = [(n, each) for n, each in enumerate(node.args[1]) if each is not None]  # type: ignore[arg-type]
        if len(given) != 1:
            return 0, None
        dim, index = given[0]
    if not isinstance(index, fx.Node) or source.dim() == 0 or not isinstance(size := source.shape[dim], int):
        return 0, None
    if 1 in source.shape and source.stride() != source.new_empty(source.shape).stride():
        return 0, None  # torch's stand-ins do not tell the strides that a dimension of one element will have
    value = index.meta["val"]
    if value.dim() != 1 or value.dtype not in INTEGERS or not 0 < value.numel() <= LONGEST:
        return 0, None
    known = _constant(host, index)
    if known is None:
        return 0, None
    wraps = node.target is not aten.index_select.default
    found = [n + size if wraps and n < 0 else n for n in known.tolist()]
    return dim, found if all(0 <= n < size for n in found) else None


def _constant(host: HostValues, node: fx.Node) -> torch.Tensor | None:
    """What a node is at every call, on whatever device: that of a list of indices is the indexed tensor's."""
    while node not in host.known:
        if node.op == "get_attr":
            return host.constants[str(node.target)]
        copies = node.target is aten.clone.default or (
            node.target is aten._to_copy.default and not set(node.kwargs) - {"device", "non_blocking"}
        )
        if not copies or not isinstance(node.args[0], fx.Node):
            return None
        node = node.args[0]
    return host.value(node)


def runs_of(places: Sequence[int]) -> list[Run]:
    """The places as few runs, each as long as it can be, in order."""
    runs: list[Run] = []
    at = 0
    while at < len(places):
        count = min(2, len(places) - at)
        step = places[at + 1] - places[at] if count == 2 else 1
        while at + count < len(places) and places[at + count] - places[at + count - 1] == step:
            count += 1
        if count == 2 and at + 2 < len(places) and abs(step) > 1:
            follows = places[at + 2] - places[at + 1]  # a run of two takes nothing from a longer one
            if at + 3 < len(places) and places[at + 3] - places[at + 2] == follows:
                count, step = 1, 1
        runs.append(Run(places[at], step if count > 1 else 1, count))
        at += count
    return runs


def _rewrite(graph: fx.Graph, host: HostValues, node: fx.Node, dim: int, places: Sequence[int]) -> None:
    with graph.inserting_before(node):
        before, like, fits = node.prev, node.meta["val"], False
        try:
            made = REWRITES[node.target](graph, node, dim, places)
            value = like if made is None else made.meta["val"]
            same = (value.shape, value.stride(), value.dtype) == (like.shape, like.stride(), like.dtype)
            fits = made is not None and same
        finally:
            while not fits and node.prev is not before:
                graph.erase_node(node.prev)
        if made is None or not fits:
            return
    made.meta = {**node.meta, "val": value}
    node.replace_all_uses_with(made)
    read = [n for n in node.all_input_nodes if n is not node.args[0]]
    graph.erase_node(node)
    for each in read:
        if not each.users and each.op == "call_function":
            host.erase(each)


def _picked(graph: fx.Graph, node: fx.Node, dim: int, places: Sequence[int]) -> fx.Node | None:
    """``index`` and ``index_select``: the elements, in memory of their own."""
    runs = runs_of(places)
    if len(runs) > RUNS:
        return None
    source: Any = node.args[0]
    return _together(graph, [run.of(graph, source, dim) for run in runs], dim)


def _put(graph: fx.Graph, node: fx.Node, dim: int, places: Sequence[int]) -> fx.Node | None:
    """``index_put`` of one value for each element, if no index comes twice: slices of the tensor and of the values."""
    source, _, values, *more = node.args
    accumulate = bool(more[0]) if more else bool(node.kwargs.get("accumulate", False))
    assert isinstance(source, fx.Node) and isinstance(values, fx.Node)
    whole, given = source.meta["val"], values.meta["val"]
    expected = [*whole.shape[:dim], len(places), *whole.shape[dim + 1 :]]
    if not all(isinstance(size, int) for size in (*expected, *given.shape)):
        return None
    if given.dtype is not whole.dtype or whole.dtype not in NUMBERS:  # of others torch has no kernel
        return None
    if len({*places}) < len(places) or list(given.shape) != expected:
        return None
    position = {place: n for n, place in enumerate(places)}
    parts: list[fx.Node] = []
    at, size = 0, whole.shape[dim]
    while at < size:
        end = at
        while end < size and (end in position) == (at in position):
            end += 1
        own = Run(at, 1, end - at)
        runs = runs_of([position[n] for n in range(at, end)]) if at in position else []
        if len(parts) + max(len(runs), 1) > RUNS:
            return None
        if not runs:
            parts.append(own.of(graph, source, dim))
        for run in runs:
            part = run.of(graph, values, dim)
            if accumulate:
                part = valued(graph, aten.add.Tensor, Run(at, 1, run.count).of(graph, source, dim), part)
            parts.append(part)
            at += run.count
        at = end
    return _together(graph, parts, dim)


def _together(graph: fx.Graph, parts: list[fx.Node], dim: int) -> fx.Node:
    """Parts of tensors, one after the other, in memory of their own."""
    if len(parts) > 1:
        return valued(graph, aten.cat.default, parts, dim)
    return valued(graph, aten.clone.default, parts[0], memory_format=torch.contiguous_format)


def valued(graph: fx.Graph, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A node with its value."""
    node = graph.call_function(target, args, kwargs)
    given, named = fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
    node.meta["val"] = target(*given, **named)
    return node


REWRITES: Mapping[Any, Any] = {
    aten.index.Tensor: _picked,
    aten.index_select.default: _picked,
    aten.index_put.default: _put,
}
