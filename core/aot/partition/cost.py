"""What an ATen node costs: bytes of its result, work to compute it, and what kind of operator it is."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from jitney.aot.trace.results import is_view, root_of
from jitney.torch_compat import operator_effects, torch_private
from jitney.torch_compat.stand_ins.tensor_iterator import hint

aten = torch.ops.aten
SECTOR = 32  # bytes that are read of memory at least

# Operators without the pointwise tag that cost no more than a pass over their result.
CHEAP_PACKETS = frozenset(
    {
        aten.clone, aten._to_copy, aten.copy, aten.where, aten.index, aten.gather, aten.triu, aten.tril, aten.cat,
        aten.stack, aten.constant_pad_nd, aten.slice_scatter, aten.select_scatter, aten.flip, aten.roll, aten.repeat,
        aten.sum, aten.mean, aten.amax, aten.amin, aten.var, aten.var_mean, aten.std, aten.any, aten.all, aten.argmax,
        aten._unsafe_view, aten.sum_to_size, aten.masked_fill, aten.lerp, aten.isnan, aten.isinf,
    }
)  # fmt: skip
# Those that are pointwise, or that pick elements, without torch's tag.
CHEAP_PACKETS |= {
    aten.elu_backward, aten.hardshrink_backward, aten.hardsigmoid_backward, aten.hardswish, aten.hardswish_backward,
    aten.hardtanh_backward, aten.leaky_relu_backward, aten.log_sigmoid_backward, aten.mish_backward,
    aten.softplus_backward, aten.softshrink_backward, aten.mse_loss_backward, aten.huber_loss_backward,
    aten.smooth_l1_loss_backward, aten.binary_cross_entropy_backward, aten.rsub, aten.floor_divide, aten.linalg_cross,
    aten._prelu_kernel, aten._prelu_kernel_backward, aten.__and__, aten.__or__, aten.__xor__, aten.fill,
    aten._unsafe_index, aten.linalg_vector_norm, aten.prod, aten.argmin,
    aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d,
    aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d,
}  # fmt: skip
FACTORY_PACKETS = frozenset(
    {
        aten.full, aten.zeros, aten.ones, aten.arange, aten.empty, aten.eye, aten.scalar_tensor, aten.full_like,
        aten.zeros_like, aten.ones_like, aten.empty_like, aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty,
        aten.new_empty_strided, aten.empty_strided, aten.linspace,
    }
)  # fmt: skip

# Memory that nobody has written to yet.
EMPTY = frozenset(
    {aten.empty_like.default, aten.new_empty.default, aten.new_empty_strided.default, aten.empty.memory_format,
     aten.empty_strided.default, aten.empty_permuted.default}
)  # fmt: skip

# Operators that raise or do nothing.
CHECK_PACKETS = frozenset(
    {aten._linalg_check_errors, aten._assert_async, aten._functional_assert_async, aten._assert_scalar,
     aten._functional_assert_scalar, aten._assert_tensor_metadata}
)  # fmt: skip


def _packet(node: fx.Node) -> Any:
    return getattr(node.target, "overloadpacket", None)


def is_random(node: fx.Node) -> bool:
    """Does the operator draw from a generator?"""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def draws(node: fx.Node) -> bool:
    """Does it move a generator? The gradient of an operator that has drawn is given what that has drawn with."""
    given = getattr(getattr(node.target, "_schema", None), "arguments", ())
    return is_random(node) and not any(argument.name.startswith("philox") for argument in given)


def is_factory(node: fx.Node) -> bool:
    """Does it make a tensor out of nothing but numbers?"""
    return _packet(node) in FACTORY_PACKETS


def is_cheap(node: fx.Node) -> bool:
    """Could a compiler fuse it: does it take no more than one pass over memory?"""
    if node.target is operator.getitem:
        return True
    # One value at all indices is what it was, whichever comes last.
    if is_view(node) or is_factory(node) or _packet(node) in CHEAP_PACKETS or node.target is aten.scatter.value:
        return not is_random(node)
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) and not is_random(node)


def is_copy(node: fx.Node) -> bool:
    """Does it only put the same elements elsewhere?"""
    return _packet(node) is aten.clone


def is_scattered_read(node: fx.Node) -> bool:
    """Does each element come from a place of its own? Memory is read by sectors, of which little is used then."""
    given: Any = node.args
    if _packet(node) is aten.gather:
        _, dim, index = given
        places = index.meta["val"]
        return places.dim() > 0 and (places.stride(-1) != 0 or dim in (-1, places.dim() - 1))
    if _packet(node) in (aten.index, aten._unsafe_index):
        source, last = given[0].meta["val"], max(n for n, index in enumerate(given[1]) if index is not None)
        run = math.prod(hint(size) for size in source.shape[last + 1 :])
        return run * source.element_size() < SECTOR
    return False


def is_reduction(node: fx.Node) -> bool:
    """Has its result much fewer elements than what it reads? Then keeping the result costs little."""
    return _count(node.meta["val"]) * 4 < sum(_count(a.meta["val"]) for a in node.all_input_nodes)


def has_effect(node: fx.Node) -> bool:
    """Must the operator run even if nobody uses its result?"""
    if not isinstance(node.target, torch_private.OPERATOR_CLASSES):
        return False
    if operator_effects.hidden_writes(node):
        return True
    return is_random(node) or not getattr(node.target, "_schema").returns  # noqa: B009 (a packet has none)


def late_effects(graph: fx.Graph) -> list[fx.Node]:
    """What the program's backward does besides computing gradients: it draws numbers, or calls what has no results."""
    late = (node for node in graph.nodes if node.meta.get("phase") == "backward" and has_effect(node))
    return [node for node in late if draws(node) or not is_random(node)]


def may_run_again(node: fx.Node) -> bool:
    """Does a second run do what one does, if random generators are put back in between? It may raise both times."""
    return not has_effect(node) or is_random(node) or _packet(node) in CHECK_PACKETS


def read_once(graph: fx.Graph) -> set[fx.Node]:
    """Operators that read memory to which another one writes though no schema says so: when they run matters."""
    written = {root_of(a) for node in graph.nodes for a in operator_effects.hidden_writes(node)}
    users = [user for root in written for user in _seen_through_views(root)]
    return {user for user in users if not is_view(user)}


def _seen_through_views(root: fx.Node) -> list[fx.Node]:
    """What uses this node's memory: its users, and those of its views."""
    found: list[fx.Node] = []
    todo = [root]
    while todo:
        users = list(todo.pop().users)
        found += users
        todo += filter(is_view, users)
    return found


def bytes_of(node: fx.Node) -> int:
    """Bytes of a node's result; of all results of an operator that returns several."""
    return _bytes(node.meta.get("val"))


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return math.prod(hint(s) for s in value.shape) * value.element_size()
    if isinstance(value, tuple | list):
        return sum(map(_bytes, value))
    return 0


def memory_of(node: fx.Node) -> int:
    """Bytes that keeping a node's result keeps alive: a view's base, however little of it the view shows."""
    return bytes_of(root_of(node))


def _count(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return math.prod([hint(s) for s in value.shape])
    if isinstance(value, tuple | list):
        return sum(map(_count, value))
    return 0


def work_of(node: fx.Node) -> float:
    """A rough count of operations, to compare nodes with: what is computed again first, if memory is short."""
    packet = _packet(node)
    reads = [a.meta["val"] for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor)]
    result = _bytes(node.meta["val"])
    if packet in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.convolution) and len(reads) > 1:
        inner = max(hint(s) for r in reads[-2:] for s in r.shape) if reads else 1
        return 2.0 * result * inner
    if is_cheap(node):
        return float(result + sum(map(_bytes, reads)))
    return 8.0 * (result + sum(map(_bytes, reads)))
