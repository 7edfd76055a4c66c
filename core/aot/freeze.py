"""Parameters as constants: what an inference graph computes from them alone is computed once, while it is compiled.

Then a multiplication or addition for each channel of a convolution or matrix product goes into its weights, as that of
a batch norm does. Rounding changes with it, so both are done only where the user asks (``options={"freeze": True}``).
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from jitney.aot.partition.cost import EMPTY, bytes_of, has_effect
from jitney.aot.partition.split import Half
from jitney.aot.trace.results import is_view
from jitney.torch_compat import torch_private

aten = torch.ops.aten
# What is computed may be larger than the parameters that it is computed from by this many bytes.
LEEWAY = 1 << 16
# They return what is in their argument's memory, and do not say so.
PASSED_ON = {operator.getitem, aten._unsafe_view.default}
GONE = torch.empty(0)  # in place of what was computed, and is read no more
# Channels may be taken apart and put together with these dtypes.
FLOATS = (torch.float32, torch.float64)


@dataclasses.dataclass(frozen=True)
class Folded:
    """What became of a graph.

    Args:
        half: the graph, its inputs as before, though some are read no more.
        used: the inputs whose numbers are in it.
        computed: how many values of it were computed.
        merged: how many operations went into weights.
    """

    half: Half
    used: tuple[int, ...]
    computed: int
    merged: int


def freeze(half: Half, constants: Mapping[int, torch.Tensor]) -> Folded:
    """Compute what depends on constants only.

    Args:
        half: an inference graph; changed.
        constants: by input, the tensor whose numbers may be taken for granted.
    """
    work = _Freezer(half, constants)
    with torch.inference_mode(False), torch.no_grad(), torch_private.DisableAutocast():
        work.compute()
        merged = work.merge()
        computed = work.put_in()
    used = sorted({i for node in work.folded for i in work.roots.get(node, ())})
    half.module.recompile()
    return Folded(half, tuple(used), computed, merged)


class _Freezer:
    def __init__(self, half: Half, constants: Mapping[int, torch.Tensor]) -> None:
        self.half = half
        self.graph: fx.Graph = half.module.graph
        self.values: dict[fx.Node, torch.Tensor] = {}  # of nodes that depend on constants only
        self.roots: dict[fx.Node, frozenset[int]] = {}  # inputs that a node, or its weights now, are computed from
        self.computed: set[fx.Node] = set()  # those of ``values`` that are no input and no view of one
        self.views: set[fx.Node] = set()  # those of ``values`` whose memory is another's
        self.own: set[fx.Node] = set()  # those of ``computed`` of which a clone is the same
        self.folded: set[fx.Node] = set()  # those that are in the graph as constants now
        self.bytes = {i: t.nbytes for i, t in constants.items()}
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        for i, tensor in constants.items():
            self.values[inputs[i]], self.roots[inputs[i]] = tensor.detach(), frozenset({i})
        for node in self.graph.nodes:
            if node.op == "get_attr":
                self.values[node], self.roots[node] = getattr(half.module, str(node.target)).detach(), frozenset()

    # ------------------------------------------------------------------ computing

    def compute(self) -> None:
        """The values of all nodes that depend on constants only, and do not grow."""
        for node in self.graph.nodes:
            if node.op != "call_function" or not self._may_compute(node):
                continue
            arguments = [self.values[n] for n in node.all_input_nodes]
            made = node.target(*fx.map_arg(node.args, self.values.get), **fx.map_arg(node.kwargs, self.values.get))
            self.values[node] = made
            self.roots[node] = frozenset().union(*(self.roots[n] for n in node.all_input_nodes))
            memory = _memory(made)
            of = [n for a, n in zip(arguments, node.all_input_nodes, strict=True) if _memory(a) == memory]
            if of:
                self.views.add(node)
            elif _is_dense(made):
                self.own.add(node)
            if all(n in self.computed for n in of):
                self.computed.add(node)
            self._let_go(node)

    def _let_go(self, node: fx.Node) -> None:
        """Forget what nothing reads any more, since what is computed of it was computed and will be in the graph."""
        for n in node.all_input_nodes:
            if n in self.computed and all(user in self.own for user in n.users):
                self.values[n] = GONE

    def _may_compute(self, node: fx.Node) -> bool:
        inputs = node.all_input_nodes
        if not all(n in self.values for n in inputs) or has_effect(node) or node.target in EMPTY:
            return False
        if not isinstance(node.target, torch_private.OPERATOR_CLASSES) or not isinstance(
            node.meta.get("val"), torch.Tensor
        ):
            return False
        if any(isinstance(n, torch.SymInt) for n in (*node.meta["val"].shape, *node.meta["val"].stride())):
            return False
        roots = frozenset().union(*(self.roots[n] for n in inputs))
        return bytes_of(node) <= sum(self.bytes[i] for i in roots) + LEEWAY

    # ------------------------------------------------------------------ merging into weights

    def merge(self) -> int:
        """Operations for each channel go into the weights of what they follow; how many did."""
        count = 0
        for node in list(self.graph.nodes):
            channels = PRODUCTS.get(node.target) if node.op == "call_function" else None
            found = None if channels is None else channels(self, node)
            if found is not None:
                count += self._merge_after(node, found)
        return count

    def _merge_after(self, node: fx.Node, weights: Weights) -> int:
        count, last = 0, node
        while len(last.users) == 1:
            (user,) = last.users
            change = self._change(user, last, weights)
            if change is None:
                break
            changed = weights.changed(*change)
            if not changed.fits():
                break
            changed.read |= {n for n in user.all_input_nodes if n is not last}
            weights, last, count = changed, user, count + 1
        if count:
            self._rewrite(node, last, weights)
        return count

    def _change(self, user: fx.Node, last: fx.Node, weights: Weights) -> tuple[Any, Any] | None:
        """``(scale, shift)`` by which an operation changes each channel; None for any other operation."""
        rule = CHANGES.get(user.target) if user.op == "call_function" else None
        value = user.meta.get("val")
        if rule is None or user.kwargs or len(user.args) != 2 or not isinstance(value, torch.Tensor):
            return None
        before = last.meta["val"]
        if (value.dtype, value.shape, value.stride()) != (weights.like.dtype, before.shape, before.stride()):
            return None
        a, b = user.args
        other = b if a is last else a
        if a is b or (a is not last and user.target not in (aten.mul.Tensor, aten.add.Tensor)):
            return None
        number = self._per_channel(other, weights, value.dim())
        if number is None:
            return None
        change = rule(number)
        return change if all(torch.as_tensor(n).isfinite().all() for n in change) else None

    def _per_channel(self, other: Any, weights: Weights, dims: int) -> torch.Tensor | float | None:
        """A number, or one for each channel in float64."""
        if isinstance(other, (int, float)) and not isinstance(other, bool):
            return float(other)
        found = self.values.get(other) if isinstance(other, fx.Node) else None
        if found is None or found.dtype is not weights.weight.dtype or found.dim() > dims:
            return None
        sizes = [1] * (dims - found.dim()) + list(found.shape)
        rest = [n for d, n in enumerate(sizes) if d != weights.dim]
        if any(n != 1 for n in rest) or sizes[weights.dim] not in (1, weights.count):
            return None
        return found.reshape(-1).double().expand(weights.count)

    def _rewrite(self, node: fx.Node, last: fx.Node, weights: Weights) -> None:
        """The product with its new weights stands for what followed it."""
        roots = frozenset().union(*(self.roots[n] for n in weights.read))
        with self.graph.inserting_before(node):
            weight = self._constant(weights.rounded(), weights.like, roots)
            bias = self._constant(weights.bias.to(weights.weight.dtype), None, roots)
        node.args = weights.arguments(node, weight, bias)
        last.replace_all_uses_with(node)

    # ------------------------------------------------------------------ writing the graph

    def _constant(self, value: torch.Tensor, like: Any, roots: frozenset[int]) -> fx.Node:
        name = f"_frozen{len(self.folded)}"
        while hasattr(self.half.module, name):
            name += "_"
        if like is not None and tuple(value.stride()) != tuple(like.stride()):
            value = torch.empty_strided(like.shape, like.stride(), dtype=value.dtype, device=value.device).copy_(value)
        elif value.untyped_storage().nbytes() != value.nbytes:
            value = value.clone(memory_format=torch.preserve_format)
        self.half.module.register_buffer(name, value, persistent=False)
        node = self.graph.get_attr(name)
        node.meta["val"] = self._fake(value) if like is None else like
        self.values[node], self.roots[node] = value, roots
        self.folded.add(node)
        return node

    def _fake(self, value: torch.Tensor) -> Any:
        mode = next(v.fake_mode for v in self.half.inputs if isinstance(v, torch_private.FakeTensor))
        return mode.from_tensor(value, static_shapes=True)

    def put_in(self) -> int:
        """Constants in the place of what was computed and is read by what was not; how many."""
        count, returned = 0, self._returned()
        left = returned - self.own  # these may stay in the graph, though their values are known
        for node in list(self.graph.nodes):
            readers = [user for user in node.users if user not in self.values or user in left]
            if node not in self.computed or not readers or not self.roots[node]:
                continue  # what depends on nothing is as fast to compute as to read
            if node in returned and (node in self.views or not _is_dense(self.values[node])):
                continue
            with self.graph.inserting_before(node):
                made = self._constant(self.values[node], node.meta["val"], self.roots[node])
                if node in returned:  # the caller may write to it
                    made = self.graph.call_function(aten.clone.default, (made,))
                    made.meta.update(node.meta)
            node.replace_all_uses_with(made)
            count += 1
        for node in reversed(list(self.graph.nodes)):
            if node.op in ("call_function", "get_attr") and not node.users and not has_effect(node):
                self.graph.erase_node(node)
        return count

    def _returned(self) -> set[fx.Node]:
        """What the caller gets, or a view of it: each call must make its own."""
        found: set[fx.Node] = set()
        for node in reversed(list(self.graph.nodes)):
            views = node in self.views or is_view(node) or node.target in PASSED_ON
            if node.op == "output" or (node in found and views):
                found.update(node.all_input_nodes)
        return found


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _is_dense(tensor: torch.Tensor) -> bool:
    """Has a clone the same strides?"""
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


@dataclasses.dataclass
class Weights:
    """Of a product with constant weights: what they are, and where its channels are.

    Args:
        weight: in float64 once it was changed; ``dtype`` is the graph's.
        bias: one number for each channel, in float64.
        dim: of the result, that of the channels.
        along: of the weight, that of the channels.
        like: the stand-in of the weight, whose layout the new one gets.
        read: the nodes whose values are in it.
        arguments: ``arguments(node, weight, bias)``: those of the product with other weights.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    dim: int
    along: int
    like: Any
    read: set[fx.Node]
    arguments: Callable[[fx.Node, fx.Node, fx.Node], tuple[Any, ...]]
    scale: torch.Tensor | None = None

    @property
    def count(self) -> int:
        """How many channels there are."""
        return int(self.weight.shape[self.along])

    def changed(self, scale: Any, shift: Any) -> Weights:
        """With each channel multiplied, then added to."""
        before = torch.ones_like(self.bias) if self.scale is None else self.scale
        return dataclasses.replace(self, bias=self.bias * scale + shift, scale=before * scale)

    def fits(self) -> bool:
        """Are the new numbers finite wherever the weight is, and not 0 where it is not?"""
        new, old = self.rounded(), self.weight
        whole = bool((new.isfinite() | ~old.isfinite()).all() and self.bias.to(old.dtype).isfinite().all())
        return whole and bool(((new != 0) | (old == 0) | (self._scales() == 0)).all())

    def _scales(self) -> torch.Tensor:
        sizes = [1] * self.weight.dim()
        sizes[self.along] = -1
        scale = torch.ones_like(self.bias) if self.scale is None else self.scale
        return scale.reshape(sizes)

    def rounded(self) -> torch.Tensor:
        """The weight, rounded once."""
        return (self.weight.double() * self._scales()).to(self.weight.dtype)


def _weights(freezer: _Freezer, weight: Any, bias: Any, **where: Any) -> Weights | None:
    known = freezer.values
    if not isinstance(weight, fx.Node) or weight not in known or known[weight].dtype not in FLOATS:
        return None
    if bias is not None and (bias not in known or known[bias].dim() != 1 or known[bias].dtype != known[weight].dtype):
        return None
    value = known[weight]
    count = value.shape[where["along"]]
    if bias is not None and known[bias].shape != (count,):
        return None
    start = value.new_zeros(count, dtype=torch.float64) if bias is None else known[bias].double()
    return Weights(value, start, like=weight.meta["val"], read={weight, *([] if bias is None else [bias])}, **where)


def _convolution(freezer: _Freezer, node: fx.Node) -> Weights | None:
    _, weight, bias, *_, transposed, _, groups = node.args
    if transposed and groups != 1:
        return None

    def arguments(node: fx.Node, weight: fx.Node, bias: fx.Node) -> tuple[Any, ...]:
        return (node.args[0], weight, bias, *node.args[3:])

    return _weights(freezer, weight, bias, dim=1, along=1 if transposed else 0, arguments=arguments)


def _addmm(freezer: _Freezer, node: fx.Node) -> Weights | None:
    bias, _, weight = node.args
    if node.kwargs:
        return None
    return _weights(
        freezer, weight, bias, dim=1, along=1, arguments=lambda node, weight, bias: (bias, node.args[1], weight)
    )


PRODUCTS: dict[Any, Callable[[_Freezer, fx.Node], Weights | None]] = {
    aten.convolution.default: _convolution,
    aten.addmm.default: _addmm,
}
# By operation with a constant: what each channel is multiplied by, and what is added then.
CHANGES: dict[Any, Callable[[Any], tuple[Any, Any]]] = {
    aten.mul.Tensor: lambda c: (c, 0.0),
    aten.div.Tensor: lambda c: (1 / torch.as_tensor(c, dtype=torch.float64), 0.0),
    aten.add.Tensor: lambda c: (1.0, c),
    aten.sub.Tensor: lambda c: (1.0, -c),
}
