"""Elements that are picked by indices which are known: slices of the tensor, one after the other.

``channels[[2, 1, 0]]``, ``state[:, [0, 2, 1, 3]]``: nothing is looked up at run time, or asked whether it is an index,
and backends that fuse views go on with the slices. Gradients and writes by such indices are slices, too, if no index
comes twice.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from jitney.aot.constants.host import NUMBERS, HostValues
from jitney.aot.signals import NotSplit
from jitney.aot.trace.insertion import insert_traced
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

    def of(self, source: Tensor, dim: int) -> Tensor:
        """This part of a tensor, a view or a copy."""
        if self.step == 0 and self.count > 1:
            shape = [-1] * source.dim()
            shape[dim] = self.count
            return Run(self.first, 1, 1).of(source, dim).expand(shape)
        last = self.first + self.step * (self.count - 1)
        low, high = min(self.first, last), max(self.first, last)
        part: Tensor = aten.slice.Tensor(source, dim, low, high + 1, abs(self.step))
        return part if self.step >= 0 else part.flip(dim)


def slice_constant_indices(
    graph: fx.Graph, constants: dict[str, Tensor], decompositions: Mapping[Any, Callable[..., Any]]
) -> None:
    """Put slices in the place of ``index``, ``index_select`` and ``index_put`` by constant indices along one dimension.

    Args:
        graph: functional, with an output node; changed.
        constants: the graph's attributes.
        decompositions: operators that the graph may not hold.

    What would take more than ``RUNS`` slices stays as it is, and so does what raises.
    """
    candidates = [node for node in graph.nodes if node.target in REWRITES]
    if not candidates or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return
    host = HostValues(graph, constants)
    for node in candidates:
        # No memory, or an operator that raises: the call will tell. NotSplit: a backend's rule writes in place.
        with contextlib.suppress(RuntimeError, NotSplit), torch_private.without_modes(), torch.no_grad():
            dim, places = _places(host, node)
            if places is not None:
                _rewrite(host, node, dim, places, decompositions)


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


def _constant(host: HostValues, node: fx.Node) -> Tensor | None:
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


def _rewrite(
    host: HostValues, node: fx.Node, dim: int, places: Sequence[int], decompositions: Mapping[Any, Callable[..., Any]]
) -> None:
    rewrite, read = REWRITES[node.target]
    tensors: list[Any] = [node.args[at] for at in read]
    like = node.meta["val"]

    def fits(value: Tensor) -> bool:
        return (value.shape, value.stride(), value.dtype) == (like.shape, like.stride(), like.dtype)

    made = insert_traced(node, functools.partial(rewrite, node, dim, places), tensors, decompositions, fits)
    if made is None:
        return
    node.replace_all_uses_with(made)
    indices = [n for n in node.all_input_nodes if n not in tensors]
    host.graph.erase_node(node)
    for each in indices:
        if not each.users and each.op == "call_function":
            host.erase(each)


def _picked(node: fx.Node, dim: int, places: Sequence[int], source: Tensor) -> Tensor | None:
    """``index`` and ``index_select``: the elements, in memory of their own."""
    runs = runs_of(places)
    return _together([run.of(source, dim) for run in runs], dim) if len(runs) <= RUNS else None


def _put(node: fx.Node, dim: int, places: Sequence[int], source: Tensor, values: Tensor) -> Tensor | None:
    """``index_put`` of one value for each element, if no index comes twice: slices of the tensor and of the values."""
    more = node.args[3:]
    accumulate = bool(more[0]) if more else bool(node.kwargs.get("accumulate", False))
    expected = [*source.shape[:dim], len(places), *source.shape[dim + 1 :]]
    if not all(isinstance(size, int) for size in (*expected, *values.shape)):
        return None
    if values.dtype is not source.dtype or source.dtype not in NUMBERS:  # of others torch has no kernel
        return None
    if len({*places}) < len(places) or list(values.shape) != expected:
        return None
    position = {place: n for n, place in enumerate(places)}
    parts: list[Tensor] = []
    at, size = 0, source.shape[dim]
    while at < size:
        end = at
        while end < size and (end in position) == (at in position):
            end += 1
        own = Run(at, 1, end - at)
        runs = runs_of([position[n] for n in range(at, end)]) if at in position else []
        if len(parts) + max(len(runs), 1) > RUNS:
            return None
        if not runs:
            parts.append(own.of(source, dim))
        for run in runs:
            part = run.of(values, dim)
            parts.append(Run(at, 1, run.count).of(source, dim) + part if accumulate else part)
            at += run.count
        at = end
    return _together(parts, dim)


def _together(parts: list[Tensor], dim: int) -> Tensor:
    """Parts of tensors, one after the other, in memory of their own."""
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0].clone(memory_format=torch.contiguous_format)


# How an operator is written, and which of its arguments that reads.
REWRITES: Mapping[Any, tuple[Callable[..., Tensor | None], tuple[int, ...]]] = {
    aten.index.Tensor: (_picked, (0,)),
    aten.index_select.default: (_picked, (0,)),
    aten.index_put.default: (_put, (0, 2)),
}
