"""Operators that compute the same thing twice, typically once in the forward and once in the backward, become one."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import torch
from torch import fx

from jitney.aot.partition.cost import is_random, read_once
from jitney.aot.trace.joint import Joint
from jitney.aot.trace.results import root_of
from jitney.backends.backend import INTERMEDIATE
from jitney.torch_compat import operator_effects

NAMESPACES = ("aten", "prims")  # others may have effects that nobody declared


def merge_equal(joint: Joint) -> None:
    """Let later equal operators of a joint graph use the first one's result.

    Results and gradients are left as they are: each has memory of its own, which the caller may write to.
    """
    handed_out = {_memory_of(n) for n in [*joint.outputs, *joint.gradients] if isinstance(n, fx.Node)}
    handed_out |= {n.args[0] for n in handed_out if n.target is operator.getitem}  # type: ignore[misc]
    timed = read_once(joint.graph)
    first: dict[Hashable, fx.Node] = {}
    for node in list(joint.graph.nodes):
        if not _mergeable(node) or node in timed or _memory_of(node) in handed_out:
            continue
        turned = _turned_twice(node)
        if turned is not None:
            node.replace_all_uses_with(turned)
            joint.graph.erase_node(node)
            continue
        same = first.setdefault((node.target, node.meta.get("checkpoint"), _key(node.args), _key(node.kwargs)), node)
        if same is not node:
            node.replace_all_uses_with(same)
            joint.graph.erase_node(node)


def _memory_of(node: fx.Node) -> fx.Node:
    """The node whose memory this one is in, also by operators that promise not to be views."""
    while True:
        root = root_of(node)
        maker = root.args[0] if root.target is operator.getitem else root
        if not isinstance(maker, fx.Node) or maker.target not in operator_effects.VIEWS:
            return root
        node = maker.args[0]  # type: ignore[assignment]


def _turned_twice(node: fx.Node) -> fx.Node | None:
    """The matrix whose transpose's transpose a node is."""
    once = node.args[0] if node.target is torch.ops.aten.t.default else None
    if not isinstance(once, fx.Node) or once.target is not torch.ops.aten.t.default or not _mergeable(once):
        return None
    return once.args[0] if isinstance(once.args[0], fx.Node) else None


def _mergeable(node: fx.Node) -> bool:
    if node.op != "call_function" or is_random(node) or INTERMEDIATE in node.meta:
        return False
    if node.target is operator.getitem:
        return isinstance(node.meta["val"], torch.Tensor)
    if getattr(node.target, "namespace", None) not in NAMESPACES:
        return False
    if operator_effects.hidden_writes(node) or any(node in operator_effects.hidden_writes(user) for user in node.users):
        return False
    number = node.target is torch.ops.aten._local_scalar_dense.default and type(node.meta["val"]) is torch.SymFloat
    return number or isinstance(node.meta["val"], torch.Tensor | tuple | list)


def _key(value: Any) -> Hashable:
    """Equal for equal arguments; 1, 1.0 and True are different ones, 0.0 and -0.0 too."""
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, (tuple, list)):
        return tuple([_key(v) for v in value])
    if isinstance(value, dict):
        return tuple([(k, _key(v)) for k, v in value.items()])
    return type(value), repr(value)
