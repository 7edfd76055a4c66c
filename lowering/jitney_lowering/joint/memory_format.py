"""Memory formats: where convolutions are, their inputs and results have the channels last.

The libraries behind convolutions (cuDNN's tensor cores, oneDNN) work on such memory; given another they convert what
they read and what they give, each time. A joint pass: it runs on the whole functional graph, before that is cut into
forward and backward, so both halves agree on what is kept between them. What goes in and comes out keeps its strides.

Values which one operator reads and writes in the same format are one region: a convolution, what is added to it and its
activation, the pool after it. A region is converted as a whole, if its convolutions save more memory traffic than the
conversions at its edges cost. A convolution that would lose more than these is at an edge itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from jitney.torch_compat.stand_ins.tensor_iterator import hint
from jitney_lowering.rules.pointwise import POINTWISE

aten = torch.ops.aten
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}

# Operators whose results have the format of some arguments, though they are not pointwise: the positions of both. A
# list counts with all its tensors; the position of a result is that of its getitem.
# Then the rank of these arguments, where one fewer means that there is no batch.
FOLLOWING: dict[Any, tuple[tuple[int, ...], tuple[int, ...], int | None]] = {
    aten.convolution.default: ((0,), (0,), None),
    aten.convolution_backward.default: ((0, 1), (0, 1), None),
    aten.cat.default: ((0,), (0,), None),
    aten.alias.default: ((0,), (0,), None),
    aten.clone.default: ((0,), (0,), None),
    aten._to_copy.default: ((0,), (0,), None),
    aten.constant_pad_nd.default: ((0,), (0,), None),
    aten.native_batch_norm.default: ((0,), (0,), None),
    aten.native_batch_norm_backward.default: ((0, 1), (0,), None),
    aten.cudnn_batch_norm.default: ((0,), (0,), None),
    aten.cudnn_batch_norm_backward.default: ((0, 1), (0,), None),
    aten.avg_pool2d.default: ((0,), (0,), 4),
    aten.avg_pool2d_backward.default: ((0, 1), (0,), 4),
    aten.avg_pool3d.default: ((0,), (0,), 5),
    aten.avg_pool3d_backward.default: ((0, 1), (0,), 5),
    aten._adaptive_avg_pool2d.default: ((0,), (0,), 4),
    aten._adaptive_avg_pool2d_backward.default: ((0, 1), (0,), 4),
    aten.max_pool2d_with_indices.default: ((0,), (0, 1), 4),
    aten.max_pool2d_with_indices_backward.default: ((0, 1, 7), (0,), 4),
    aten.max_pool3d_with_indices.default: ((0,), (0, 1), 5),
    aten.max_pool3d_with_indices_backward.default: ((0, 1, 7), (0,), 5),
    aten.upsample_nearest2d.default: ((0,), (0,), 4),
    aten.upsample_nearest2d.vec: ((0,), (0,), 4),
    aten.upsample_nearest2d_backward.default: ((0,), (0,), 4),
    aten.upsample_bilinear2d.default: ((0,), (0,), 4),
    aten.upsample_bilinear2d.vec: ((0,), (0,), 4),
    aten.upsample_bilinear2d_backward.default: ((0,), (0,), 4),
}
CHANNEL_REDUCTIONS = (aten.mean.dim, aten.sum.dim_IntList, aten.amax.default, aten.amin.default)
"""They may read their first argument as it lies; their results lie as in eager."""
CONVOLUTIONS: dict[Any, tuple[int, int, int]] = {
    aten.convolution.default: (0, 1, 8),
    aten.convolution_backward.default: (1, 2, 9),
}
"""The positions of input, weight and groups."""


@dataclass(frozen=True)
class Convolution:
    """What is asked about.

    Args:
        groups: of channels.
        channels: of the input.
        results: channels of the result.
        window: elements of the kernel for each pair of channels.
        dtype: of the input.
        backward: are gradients computed?
    """

    groups: int
    channels: int
    results: int
    window: int
    dtype: torch.dtype
    backward: bool = False


Worth = Callable[[Convolution], float]


@dataclass
class Region:
    """Values that have one format.

    Args:
        values: nodes whose value is a tensor.
        operators: that read or give such values.
        saved: bytes of memory traffic that its convolutions do without.
        spent: bytes that conversions at its edges take.
    """

    values: list[fx.Node] = field(default_factory=list)
    operators: list[fx.Node] = field(default_factory=list)
    saved: float = 0.0
    spent: float = 0.0


def channels_last(
    graph: fx.Graph, device_type: str, worth: Worth, reading: Collection[Any] = (), plain_weights: bool = False
) -> int:
    """Give regions of a functional graph, around convolutions of one kind of device, the format channels_last.

    Args:
        graph: ATen operators, each node with its FakeTensor in ``meta["val"]``; one output node. It is changed: values
            in regions have other strides, ``clone`` stands where a value enters or leaves one.
        device_type: as in ``torch.device.type``.
        worth: how much of the bytes that a convolution reads and writes it would save, in channels_last; negative if it
            is slower then. One that would lose more than all of them stays as it is.
        reading: operators, ``CHANNEL_REDUCTIONS`` and others whose results lie as in eager whatever their first
            argument is like, that read such values as fast as contiguous ones.
        plain_weights: does the library read weights of single pixels as they are if images are in channels_last, and
            put them in an order of its own if not? Then they are saved bytes, too. Those of several pixels it is given
            with the channels last, by a copy in training, where they change.

    Returns:
        How many regions were converted.
    """
    if not any(node.target in CONVOLUTIONS for node in graph.nodes):
        return 0
    flow = _Flow(graph, device_type, worth, reading)
    regions = [region for region in flow.regions(plain_weights) if region.saved > region.spent]
    for region in regions:
        flow.convert(region)
    return len(regions)


class _Flow:
    """Which values have to have one format, and which operators read a value as it lies."""

    def __init__(self, graph: fx.Graph, device_type: str, worth: Worth, reading: Collection[Any]) -> None:
        self.graph = graph
        self.device_type = device_type
        self.worth = {node: worth(_convolution(node)) for node in graph.nodes if node.target in CONVOLUTIONS}
        self.following = FOLLOWING | dict.fromkeys(reading, ((0,), (), None))
        self.inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.parent: dict[fx.Node, fx.Node] = {}
        self.read: dict[fx.Node, list[fx.Node]] = {}  # by operator: the arguments that have its format
        self.home: dict[fx.Node, fx.Node] = {}  # by operator: a value of its region
        for node in graph.nodes:
            if node.op == "call_function" and self.worth.get(node, 0) >= -1:
                self._join(node)

    def _join(self, node: fx.Node) -> None:
        arguments, results = self._formatted(node)
        results = [value for value in results if self._has_format(value)]
        self.parent.update({value: value for value in results})
        joined = [*results, *(a for a in arguments if a in self.parent)]
        if not joined:
            return
        self.home[node] = joined[0]
        self.read[node] = [a for a in arguments if _rank(a) in FORMATS]
        for value in joined[1:]:
            self.parent[self._root(value)] = self._root(joined[0])

    def _formatted(self, node: fx.Node) -> tuple[list[fx.Node], list[fx.Node]]:
        """The arguments and the results of an operator that have one format; both empty for any other operator."""
        if node.target in POINTWISE:
            shape = _shape(node)
            return [a for a in node.all_input_nodes if _shape(a) == shape], [node]
        if node.target not in self.following:
            return [], []
        read, given, rank = self.following[node.target]
        arguments: list[fx.Node] = []
        for position in read:
            fx.map_arg(node.args[position], arguments.append)
        if rank is not None and any(_rank(argument) != rank for argument in arguments):
            return [], []
        if not isinstance(node.meta["val"], (list, tuple)):
            return arguments, [node] if given else []
        return arguments, [u for u in node.users if u.target is operator.getitem and u.args[1] in given]

    def _has_format(self, node: fx.Node) -> bool:
        """Is it a tensor that is contiguous in eager, and would lie otherwise in channels_last?"""
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dim() not in FORMATS or value.layout is not torch.strided:
            return False
        size = hints(value.shape)
        if value.device.type != self.device_type or size[1] == 1 or math.prod(size[2:]) <= 1:
            return False
        return hints(value.stride()) == [math.prod(size[d + 1 :]) for d in range(len(size))]

    def _root(self, node: fx.Node) -> fx.Node:
        root = node
        while self.parent[root] is not root:
            root = self.parent[root]
        while node is not root:  # so that nobody goes this way again
            self.parent[node], node = root, self.parent[node]
        return root

    def regions(self, plain_weights: bool = False) -> list[Region]:
        """All regions, with what a conversion saves and costs; see ``channels_last``."""
        found: dict[fx.Node, Region] = {}
        for value in self.parent:
            found.setdefault(self._root(value), Region()).values.append(value)
        for node, arguments in self.read.items():
            region = found[self._root(self.home[node])]
            if node.target in CONVOLUTIONS:
                moved = sum(map(_bytes, {*arguments, *self._formatted(node)[1][:1]}))
                asked = _convolution(node)
                weight = _bytes(node.args[CONVOLUTIONS[node.target][1]])  # type: ignore[arg-type]
                if plain_weights and asked.window == 1:
                    moved += (1 + asked.backward) * weight
                elif plain_weights and asked.backward:
                    region.spent += 2 * weight
                region.saved += moved * self.worth[node]
        for node in self.read:
            found[self._root(self.home[node])].operators.append(node)
        for root, region in found.items():
            entering = {a for node in region.operators for a in self._entering(node, root)}
            leaving = {v for v in region.values if any(True for _ in self._leaving(v, root))}
            region.spent += sum(map(_traffic, [*entering, *leaving]))
        return list(found.values())

    def _entering(self, node: fx.Node, root: fx.Node) -> list[fx.Node]:
        """What comes from elsewhere into an operator of a region."""
        return [a for a in self.read[node] if a not in self.parent or self._root(a) is not root]

    def _leaving(self, value: fx.Node, root: fx.Node) -> Iterator[fx.Node]:
        """Who reads a value of a region and is not in it."""
        for user in value.users:
            if user.target is operator.getitem:
                continue
            inside = user in self.read and value in self.read[user]
            if not inside or self._root(self.home[user]) is not root:
                yield user

    def convert(self, region: Region) -> None:
        """Give all values of a region the format, and put conversions at its edges."""
        root = self._root(region.values[0])
        entered: dict[fx.Node, fx.Node] = {}
        for node in region.operators:
            for argument in self._entering(node, root):
                if argument not in entered:
                    entered[argument] = self._copy(argument, FORMATS[_rank(argument)])
                node.replace_input_with(argument, entered[argument])
        for value in region.values:
            left = [user for user in self._leaving(value, root) if user not in entered.values()]
            if left:
                copy = self._copy(value, torch.contiguous_format)
                for user in left:
                    user.replace_input_with(value, copy)
            self._lay_out(value)

    def _lay_out(self, value: fx.Node) -> None:
        """From now on the value has the format."""
        value.meta["val"] = _laid_out(value.meta["val"])
        source = _operator(value)
        if source is not value:
            results = list(source.meta["val"])
            results[value.args[1]] = value.meta["val"]  # type: ignore[index]
            source.meta["val"] = type(source.meta["val"])(results)
        elif "memory_format" in value.kwargs:
            value.kwargs = {**value.kwargs, "memory_format": torch.preserve_format}

    def _copy(self, value: fx.Node, memory_format: torch.memory_format) -> fx.Node:
        """A clone, before whatever reads the value."""
        with self.graph.inserting_after(self.inputs[-1] if value in self.inputs else value):
            copy = self.graph.call_function(aten.clone.default, (value,), {"memory_format": memory_format})
        copy.meta = dict(value.meta)
        if memory_format is not torch.contiguous_format:  # in which eager's values are
            copy.meta["val"] = _laid_out(value.meta["val"])
        return copy


def _operator(value: fx.Node) -> fx.Node:
    """What computes a value: of one of several results not the getitem."""
    source = value.args[0] if value.target is operator.getitem else value
    assert isinstance(source, fx.Node)
    return source


def _convolution(node: fx.Node) -> Convolution:
    first, second, last = CONVOLUTIONS[node.target]
    x, weight = node.args[first], node.args[second]
    groups, transposed = node.args[last], node.args[last - 2]
    assert isinstance(x, fx.Node) and isinstance(weight, fx.Node) and isinstance(groups, int)
    size = _shape(weight) or []
    return Convolution(
        groups,
        (_shape(x) or [])[1],
        size[1] * groups if transposed else size[0],
        math.prod(size[2:]),
        x.meta["val"].dtype,
        node.target is aten.convolution_backward.default,
    )


def hints(numbers: Sequence[Any]) -> list[int]:
    """Sizes or strides as they are now; no guard is made of what is decided by them."""
    return [*map(hint, numbers)]


def _shape(node: fx.Node) -> list[int] | None:
    value = node.meta.get("val")
    return hints(value.shape) if isinstance(value, torch.Tensor) else None


def _rank(node: fx.Node) -> int:
    return len(_shape(node) or ())


def _bytes(node: fx.Node) -> int:
    return math.prod(_shape(node) or ()) * node.meta["val"].dtype.itemsize


def _traffic(node: fx.Node) -> int:
    """Bytes that a conversion reads: of what is only repeated, what it is made of."""
    return _traffic(node.all_input_nodes[0]) if node.target is aten.expand.default else _bytes(node)


def _laid_out(value: torch.Tensor) -> torch.Tensor:
    """A stand-in as this one, with the channels last."""
    size = value.shape
    strides: list[Any] = [1] * len(size)
    step = size[1]
    for dim in [*reversed(range(2, len(size))), 0]:
        strides[dim] = step
        step = step * size[dim]
    with value.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(size, strides, dtype=value.dtype, device=value.device)
