"""torch's functionalization, as far as it is used here: wrap stand-ins, run, ask what was written."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from torch import fx

from jitney.aot.memory_overlap import overlaps_itself
from jitney.aot.signals import NotSplit
from jitney.torch_compat import torch_private
from jitney.torch_compat.operator_effects import RESHAPING
from jitney.torch_compat.stand_ins.tensor_iterator import hint


@contextlib.contextmanager
def functionalizing() -> Iterator[None]:
    """In-place operators and views on wrapped tensors become functional operators; views stay view operators."""
    torch_private.functionalization.enable(reapply_views=True)
    try:
        with torch.autograd.set_multithreading_enabled(False):  # modes are of this thread
            yield
    finally:
        torch_private.functionalization.disable()


@contextlib.contextmanager
def below_subclasses() -> Iterator[None]:
    """As ``functionalizing``, for programs with tensors of subclasses that wrap tensors.

    What is called on an outer tensor goes past functionalization, to the subclass; what that calls on inner tensors
    arrives at the dispatch mode, which sends it to functionalization (``AtenTracer.functionalize``).
    """
    with torch_private.functionalization_skipped(), torch.autograd.set_multithreading_enabled(False):
        yield


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """No functionalization for a while."""
    if not torch_private.functionalization_active():
        yield
        return
    torch_private.functionalization.disable()
    try:
        yield
    finally:
        torch_private.functionalization.enable(reapply_views=True)


def tangent_like(fake_mode: Any, inner: Any) -> Any:
    """A stand-in for a result's gradient, seen by no mode, while functionalizing.

    It has the result's strides; if those are symbolic, or put elements in one place, its order of dimensions without
    gaps. ``backward.Tangent`` lays out each gradient so.
    """
    stride = list(inner.stride())
    if any(isinstance(s, torch.SymInt) for s in stride) or overlaps_itself(inner.shape, stride):
        step: Any = 1
        for d in sorted(range(inner.dim()), key=lambda d: -hint(inner.stride(d)))[::-1]:
            stride[d] = step
            step = step * inner.shape[d]
    with paused(), torch_private.without_modes(), fake_mode:
        return torch.empty_strided(inner.shape, stride, dtype=inner.dtype, device=inner.device)


@contextlib.contextmanager
def layouts_kept(node: fx.Node, values: Sequence[Any]) -> Iterator[None]:
    """What an operation writes to keeps its strides: the functional operator's result may have others.

    Whether ``reshape`` makes a view, for one, depends on strides.
    """
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    roots = {}
    if name.split(".")[0] not in RESHAPING:
        for value in values:
            if is_wrapped(value):
                root = value if value._base is None else value._base
                roots[id(root)] = (root, unwrapped(root))
    yield
    for root, before in roots.values():
        inner = unwrapped(root)
        if inner is not before and same(inner.shape, before.shape) and not same(inner.stride(), before.stride()):
            _lay_out(root, before.stride())
    for value in values:  # a view that was written to has its strides only when it is made again
        unwrapped(value)


@contextlib.contextmanager
def writes_checked(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], inputs: Set[int]) -> Iterator[None]:
    """Refuse writes of one operation that a functional graph cannot say; ``inputs``: the graph's inputs' storages.

    Raises:
        NotSplit: it wrote to a tensor some of whose elements are in one place, or are those that it read by another
            view, or ``out=`` gave another size to a tensor that somebody else may see.
    """
    if node.target is operator.getitem and isinstance(args[0], (list, tuple)):
        yield  # of several results one
        return
    given = list(tensors((args, kwargs)))
    spread = [(v, unwrapped(v)) for v in given if overlaps_itself(v.shape, v.stride())]
    assigns = node.target in (operator.setitem, "__setitem__")
    if any(_reads_what_it_writes(*pair) for pair in _written_across(node, args, kwargs)):
        raise NotSplit("a write to a tensor whose memory the same operation reads elsewhere")
    assigned = _assigned(*args) if assigns else None
    related = [] if assigns else _related(given)
    outs = [(v, v.shape) for v in tensors(kwargs.get("out"))]
    listed = _listed_twice(node, given)
    yield
    if any(unwrapped(v) is not before for v, before in spread):
        raise NotSplit("a write to a tensor some of whose elements share memory")
    pairs = [pair for group in related for pair in _written_views(group)]
    if assigned is not None and unwrapped(assigned[0]) is not assigned[1]:
        pairs.append(assigned[2:])
    if any(_meet(*pair) for pair in pairs):
        raise NotSplit("a write to elements that the same operation reads by another view")
    if any(unwrapped(v) is not before for v, before in listed):
        raise NotSplit("a write to tensors of a list that share memory with others of its lists")
    for v, size in outs:
        empty = any(type(n) is int and n == 0 for n in size)  # of which no view could show anything
        if not same(v.shape, size) and (not empty or v._base is not None or storage_of(v) in inputs):
            raise NotSplit("a tensor that is given as out= is resized")


def memory_order(x: Any) -> list[int]:
    """The dimensions as the elements of a dense tensor lie in memory; of any other as they are."""
    found = sorted(range(x.dim()), key=lambda d: -hint(x.stride(d)))
    size = 1
    for d in reversed(found):
        if hint(x.size(d)) != 1 and hint(x.stride(d)) != size:
            return list(range(x.dim()))
        size *= hint(x.size(d))
    return found


def _listed_twice(node: fx.Node, given: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Tensors in the lists of a ``_foreach`` operation whose memory is there more than once, and what they stand for.

    Eager goes through the lists one after the other, and reads what it wrote before.
    """
    if not getattr(node.target, "__name__", str(node.target)).startswith("_foreach"):
        return []
    storages = Counter(map(storage_of, given))
    return [(v, unwrapped(v)) for v in given if storages[storage_of(v)] > 1]


# In-place operators that read other elements of their arguments than the one that they write: the indices say which, or
# a product has whole rows.
ACROSS_ELEMENTS = frozenset({
    "addbmm_", "addmm_", "addmv_", "baddbmm_", "index_add_", "index_copy_", "index_put_", "index_reduce_",
    "masked_scatter_", "put_", "scatter_", "scatter_add_", "scatter_reduce_",
})  # fmt: skip


def _written_across(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """What an operation writes to, and its other arguments, where it is not done element by element."""
    if node.target in (operator.setitem, "__setitem__"):
        if not _is_basic(args[1]):
            yield args[0], args[1:]
        return
    name = (node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")).split(".")[0]
    if name in ACROSS_ELEMENTS:
        yield args[0], (args[1:], kwargs)
    elif "out" in kwargs and not _is_pointwise(name):
        others = (args, {key: value for key, value in kwargs.items() if key != "out"})
        yield from ((out, others) for out in tensors(kwargs["out"]))


@functools.cache
def _is_pointwise(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and any(torch.Tag.pointwise in getattr(packet, o).tags for o in packet.overloads())


def _is_basic(subscript: Any) -> bool:
    """Does it make a view? Lists, booleans and tensors in it choose elements."""
    parts = subscript if isinstance(subscript, tuple) else (subscript,)
    return all(
        part is None or part is Ellipsis or (isinstance(part, (int, slice, torch.SymInt)) and type(part) is not bool)
        for part in parts
    )


def _reads_what_it_writes(target: Any, others: Any) -> bool:
    """Does an operator read memory that it may have written to? Eager's refuses, or takes what it has just written.

    But one element that is assigned by a mask is read before.
    """
    if not is_wrapped(target):
        return False
    given = list(tensors(others))
    masks = any(v.dtype is torch.bool for v in given)
    whole = _layout(unwrapped(target))
    return any(
        storage_of(v) == storage_of(target)
        and not (masks and all(type(n) is int and n == 1 for n in v.shape))
        and _spans_meet(whole, _layout(unwrapped(v)))
        for v in given
    )


def _assigned(target: Any, subscript: Any, value: Any) -> tuple[Any, Any, Any, Any] | None:
    """For ``target[subscript] = value``: the target, what it stands for now, and where that part and the value are."""
    if not is_wrapped(target) or not is_wrapped(value) or storage_of(target) != storage_of(value):
        return None
    if not _is_basic(subscript):  # a copy: nothing that could tell where it is
        return None
    before, given = unwrapped(target), unwrapped(value)  # either may be made anew for that: part of the graph
    with paused(), torch_private.without_modes(), torch.no_grad():
        return (target, before, before[subscript], given)


def _related(given: Sequence[Any]) -> list[list[tuple[Any, Any]]]:
    """Different views of one memory, with what each stands for now; for each memory of several."""
    groups: dict[int, dict[int, tuple[Any, Any]]] = {}
    for value in given:
        groups.setdefault(storage_of(value), {})[id(value)] = (value, unwrapped(value))
    return [[*group.values()] for group in groups.values() if len(group) > 1]


def _written_views(group: Sequence[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Where the views of one memory were, two at a time, if it has been written to: all views are made again then."""
    if any(unwrapped(value) is not before for value, before in group):
        yield from itertools.combinations((before for _, before in group), 2)


Layout = tuple[tuple[int, ...], tuple[int, ...], int]  # sizes, strides and offset, as they were when captured


def _layout(value: Any) -> Layout:
    return tuple(map(hint, value.shape)), tuple(map(hint, value.stride())), hint(value.storage_offset())


def _meet(one: Any, other: Any) -> bool:
    """Have two views of one memory elements in common, but not all of them in the same order?"""
    first, second = _layout(one), _layout(other)
    if first == second or not _spans_meet(first, second):
        return False
    if any(math.prod(size) > _FEW for size, _, _ in (first, second)):
        return True  # perhaps
    return not _places(*first).isdisjoint(_places(*second))


def _spans_meet(one: Layout, other: Layout) -> bool:
    """Do the spans of two layouts, from the first element to the last, have places in common?"""
    if 0 in one[0] or 0 in other[0]:
        return False
    ends = [at + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) for size, stride, at in (one, other)]
    return one[2] <= ends[1] and other[2] <= ends[0]


_FEW = 1 << 16  # elements that are looked at one by one


def _places(size: Sequence[int], stride: Sequence[int], offset: int) -> set[int]:
    found = {offset}
    for count, step in zip(size, stride, strict=True):
        found = {place + i * step for place in found for i in range(count)} if count > 1 else found
    return found


def tensors(value: Any) -> Iterator[Any]:
    """The functional tensors in a value, or in its items."""
    if isinstance(value, Mapping):
        value = value.values()
    elif is_wrapped(value):
        yield value
        return
    elif not isinstance(value, (list, tuple)):
        return
    for item in value:
        yield from tensors(item)


def same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Are these the same sizes? Symbolic ones if they are written alike: nothing is guarded."""
    return len(some) == len(others) and all(_expression(a) == _expression(b) for a, b in zip(some, others, strict=True))


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _lay_out(root: Any, stride: tuple[Any, ...]) -> None:
    """Replace a functional tensor's current value by one of equal elements and these strides."""
    inner = unwrapped(root)
    with paused(), torch.no_grad():
        made = _with_strides(inner, stride)
    torch_private.functionalization.replace(root, made)
    torch_private.functionalization.commit(root)
    torch_private.functionalization.sync(root)


def _with_strides(inner: Any, stride: tuple[Any, ...]) -> Any:
    order = sorted(range(inner.dim()), key=lambda d: hint(stride[d]), reverse=True)
    made = inner.permute(order).clone(memory_format=torch.contiguous_format)
    made = made.permute([order.index(d) for d in range(inner.dim())])
    if same(made.stride(), stride):
        return made
    if any(type(n) is int and n == 0 for n in inner.shape):
        return inner.new_empty_strided(inner.shape, stride)
    count = 1 + sum((n - 1) * s for n, s in zip(inner.shape, stride, strict=True))
    memory = inner.new_empty((count,)).as_strided_scatter(inner, inner.shape, stride)
    return memory.as_strided(inner.shape, stride)


class _Enter(torch.autograd.Function):
    """An inner node of the user's autograd graph: gradients arrive at ``leaf``, in-place operators are allowed."""

    @staticmethod
    def forward(ctx: Any, leaf: Any, make: Callable[[], Any]) -> Any:
        ctx.set_materialize_grads(False)  # no gradient stays none
        return make()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


def wrapped(make: Callable[[], Any], requires_grad: bool, is_leaf: bool) -> tuple[Any, Any]:
    """(what the program gets, the leaf whose gradient is the input's) for what makes a functional tensor."""
    leaf = make()
    if not requires_grad:
        return leaf, None
    leaf.requires_grad_(True)
    if is_leaf:
        return leaf, leaf
    with torch.enable_grad():
        return _Enter.apply(leaf, make), leaf


def enters(node: Any) -> bool:
    """Is a node of the engine's one through which a gradient arrives at an input?"""
    return getattr(node, "_forward_cls", None) is _Enter


def is_wrapped(value: Any) -> bool:
    """Is it a functional tensor?"""
    return isinstance(value, torch.Tensor) and torch_private.functionalization.is_wrapped(value)


def unwrapped(value: Any) -> Any:
    """The stand-in that holds a functional tensor's current value."""
    if not is_wrapped(value):
        return value
    torch_private.functionalization.sync(value)
    return torch_private.functionalization.unwrap(value)


def storage_of(value: Any) -> int:
    """Equal for functional tensors that are views of one another."""
    return int(value.untyped_storage()._cdata)


def data_written(value: Any) -> bool:
    """Has its data been written to?"""
    return bool(torch_private.functionalization.has_data_mutation(value))


def metadata_written(value: Any) -> bool:
    """Has its shape been changed in place?"""
    return bool(torch_private.functionalization.has_metadata_mutation(value))


def version(value: Any) -> int:
    """How often it was written to, as autograd counts; -1 for numbers and tensors of inference mode."""
    return int(value._version) if isinstance(value, torch.Tensor) and not value.is_inference() else -1


def memory_replaced(value: Any) -> bool:
    """Has ``set_`` or a resize replaced its memory?"""
    return bool(torch_private.functionalization.storage_changed(value))
