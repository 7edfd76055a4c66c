"""Writes of what the same mask has taken: ``z[m] = y[m] * 2`` is ``z.copy_(where(m, y * 2, z))``, of known sizes.

Only operations element by element, on tensors of one shape and dtype: each element is what it was, and so is its
gradient. What the mask leaves out is 1 while it is computed with, so that no other element raises, or has a gradient.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from jitney.aot.memory_overlap import overlaps_itself
from jitney.graph_compile.subgraphs import operation_result
from jitney.torch_compat import torch_private

# Methods (in place or not) of which each element of the result is made of one element of each argument.
ELEMENTWISE = frozenset(
    "abs add cos detach div exp log mul neg reciprocal relu rsqrt sigmoid sin sqrt square sub tanh true_divide".split()
)
# Those that leave integers what they are: in place, others raise on them.
INTEGRAL = frozenset("abs add detach mul neg relu square sub".split())
FUNCTIONS = {operator.add, operator.mul, operator.sub, operator.truediv, operator.neg}
INVERTED = {"bitwise_not", "logical_not", operator.invert}


def without_masked_writes(graph: fx.GraphModule) -> fx.GraphModule:
    """A captured graph with such writes as operations of known sizes; the same one if it has none."""
    if not any(node.target is operator.setitem and _taken(node) for node in graph.graph.nodes):
        return graph
    made = fx.GraphModule(graph, fx.Graph())
    made.graph.output(made.graph.graph_copy(graph.graph, {}))
    for node in [*made.graph.nodes]:
        taken = _taken(node) if node.target is operator.setitem else None
        if taken:
            _replace(node, taken)
    made.graph.lint()
    made.recompile()
    return made


def _taken(write: fx.Node) -> list[fx.Node] | None:
    """What computes the value that is written, from the takings of the mask on, in order; None if that is not all."""
    target, mask, value = write.args
    if not (isinstance(target, fx.Node) and isinstance(mask, fx.Node) and isinstance(value, fx.Node)):
        return None
    like, flags = target.meta["example_value"], mask.meta["example_value"]
    if not _is_mask(flags, like):
        return None
    found: list[fx.Node] = []
    node = write.prev
    while node.op != "root" and (node.target in INVERTED or _belongs(node, mask, like, {write, *found})):
        if node.target not in INVERTED:
            found.insert(0, node)
        node = node.prev
    if value not in found or not all(_known(n, found) for n in found):
        return None
    in_place = any(str(node.target).endswith("_") for node in found)
    return None if in_place and not all(_may_be_fresh(node, like) for node in found) else found


def _may_be_fresh(node: fx.Node, like: Any) -> bool:
    """Is a new tensor as good as this one, that may be changed in place? Of integers, that may not become floats."""
    if not like.is_floating_point() and str(node.target).endswith("_"):
        integers = all(isinstance(a, fx.Node) or type(a) is int for a in node.args)
        if str(node.target).removesuffix("_") not in INTEGRAL or not integers:
            return False
    return len(node.users) == 1


def _is_mask(flags: Any, like: Any) -> bool:
    tensors = type(flags) is torch_private.FakeTensor and type(like) is torch_private.FakeTensor
    if not tensors or flags.dtype is not torch.bool or flags.dim() > like.dim():
        return False
    if like.dtype is torch.bool or like.is_complex() or flags.device != like.device:  # a mask may lie on the host
        return False
    if torch_private.storage_of(flags) == torch_private.storage_of(like):  # eager raises
        return False
    if overlaps_itself(like.shape, like.stride()):  # what the mask leaves out would be written, too
        return False
    return _same(flags.shape, like.shape[: flags.dim()])


def _same(one: Any, other: Any) -> bool:
    """Are these sizes written alike? Nothing is guarded."""
    return len(one) == len(other) and all(str(a) == str(b) for a, b in zip(one, other, strict=True))


def _belongs(node: fx.Node, mask: fx.Node, like: Any, users: set[fx.Node]) -> bool:
    value = node.meta.get("example_value")
    if type(value) is not torch_private.FakeTensor or value.dtype is not like.dtype or not node.users.keys() <= users:
        return False
    if node.target is operator.getitem:
        source: Any = node.args[0].meta.get("example_value") if isinstance(node.args[0], fx.Node) else None
        plain = type(source) is torch_private.FakeTensor and source.device == like.device
        return _equal(node.args[1], mask) and plain and _same(source.shape, like.shape)
    named = node.op == "call_method" and str(node.target).removesuffix("_") in ELEMENTWISE
    return (named or node.target in FUNCTIONS) and not node.kwargs


def _equal(one: Any, mask: fx.Node) -> bool:
    """Is it the same mask, or the opposite of the same?"""
    opposite = isinstance(one, fx.Node) and one.target in INVERTED and one.target == mask.target
    return one is mask or (opposite and one.args == mask.args and one.kwargs == mask.kwargs and _unwritten(one, mask))


def _unwritten(one: fx.Node, mask: fx.Node) -> bool:
    """Is there nothing but what computes with one of the masks between them?"""
    first, last = sorted((one, mask))
    node = first.next
    while node is not last:
        if node.target is not operator.getitem and node.target not in INVERTED | FUNCTIONS:
            if node.op != "call_method" or node.target not in ELEMENTWISE:
                return False
        node = node.next
    return True


def _known(node: fx.Node, found: list[fx.Node]) -> bool:
    """Is it made of takings of the mask, and of numbers of Python's?"""
    if node.target is operator.getitem:
        return True
    return all(a in found if isinstance(a, fx.Node) else type(a) in (int, float) for a in node.args)


def _replace(write: fx.Node, taken: list[fx.Node]) -> None:
    target, mask, value = write.args
    assert isinstance(target, fx.Node) and isinstance(mask, fx.Node) and isinstance(value, fx.Node)
    graph, like = write.graph, target.meta["example_value"]
    made: dict[fx.Node, fx.Node] = {}

    def add(kind: str, what: Any, *args: Any) -> fx.Node:
        node = graph.create_node(kind, what, args)
        values = fx.node.map_arg(args, lambda a: a.meta["example_value"])
        with like.fake_mode:
            node.meta["example_value"] = operation_result(node, values, {})
        node.meta.update({k: v for k, v in write.meta.items() if k != "example_value"})
        return node

    with graph.inserting_before(write), torch_private.without_modes():
        flags = mask
        for _ in range(like.dim() - mask.meta["example_value"].dim()):
            flags = add("call_method", "unsqueeze", flags, -1)
        for node in taken:
            if node.target is operator.getitem:
                made[node] = add("call_function", torch.where, flags, node.args[0], 1)
            else:
                args = [made[a] if isinstance(a, fx.Node) else a for a in node.args]
                what = node.target.removesuffix("_") if isinstance(node.target, str) else node.target
                made[node] = add(node.op, what, *args)
        add("call_method", "copy_", target, add("call_function", torch.where, flags, made[value], target))
    for node in (write, *reversed(taken)):
        graph.erase_node(node)
