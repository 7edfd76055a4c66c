"""Operators that show the elements of one tensor in another order: index arithmetic, never a copy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, is_spread, projected
from jitney_lowering.aten.tensor import ONE, ZERO, Shape, Tensor, count
from jitney_lowering.index import Index, at_most, index, min_
from jitney_lowering.ir.values import Value, apply
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
VIEWS: dict[Any, Rule] = {}
COPIES: dict[Any, Rule] = {}  # the same elements in memory of their own


def view(*targets: Any) -> Callable[[Rule], Rule]:
    """Register a rule for these overloads."""

    def register(rule: Rule) -> Rule:
        for target in targets:
            if target._schema.name.endswith("_copy"):
                COPIES[target] = functools.partial(_copied, rule)
            else:
                VIEWS[target] = rule
        return rule

    return register


def copies(*targets: Any) -> Callable[[Rule], Rule]:
    """Register a rule for overloads that give memory of their own."""

    def register(rule: Rule) -> Rule:
        COPIES.update(dict.fromkeys(targets, rule))
        return rule

    return register


def _copied(rule: Rule, call: Call) -> Any:
    made = rule(call)
    if isinstance(made, list):
        return [Tensor(m.size, m.dtype, m.device, m.load) for m in made]
    return call.result(made.load)


@view(
    aten.alias.default, aten.detach.default, aten.alias_copy.default, aten.detach_copy.default, aten.lift_fresh.default
)
def same(call: Call) -> Tensor:
    """The same elements."""
    return call.args[0].view(call.size, lambda at: at)


# --- orders of dimensions -------------------------------------------------------------------------------------------


def permuted(x: Tensor, order: Sequence[int]) -> Tensor:
    """Dimension n of the result is dimension ``order[n]``."""
    back = [list(order).index(d) for d in range(len(order))]
    return x.view([x.size[d] for d in order], lambda at: [at[d] for d in back])


@view(aten.permute.default, aten.permute_copy.default)
def permute(call: Call) -> Tensor:
    """Dimensions in another order."""
    x, order = call.args
    return permuted(x, [axis(d, len(x.size)) for d in order])


@view(aten.transpose.int, aten.transpose_copy.int)
def transpose(call: Call) -> Tensor:
    """Two dimensions exchanged."""
    x, a, b = call.args
    if not x.size:
        return same(call)
    order = list(range(len(x.size)))
    a, b = axis(a, len(order)), axis(b, len(order))
    order[a], order[b] = b, a
    return permuted(x, order)


@view(aten.t.default, aten.t_copy.default)
def t(call: Call) -> Tensor:
    """A transposed matrix."""
    x = call.args[0]
    return permuted(x, range(len(x.size))[::-1])


# --- dimensions of size 1, and broadcast ones -----------------------------------------------------------------------


@view(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def unsqueeze(call: Call) -> Tensor:
    """A new dimension of size 1."""
    x, dim = call.args
    return inserted(x, axis(dim, len(x.size) + 1))


def inserted(x: Tensor, dim: int) -> Tensor:
    """A new dimension of size 1."""
    return x.view([*x.size[:dim], ONE, *x.size[dim:]], lambda at: [*at[:dim], *at[dim + 1 :]])


def removed(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Without these dimensions of size 1."""
    kept = [d for d in range(len(x.size)) if d not in dims]

    def remap(at: Shape) -> Sequence[Index]:
        full = [ZERO] * len(x.size)
        for d, i in zip(kept, at, strict=True):
            full[d] = i
        return full

    return x.view([x.size[d] for d in kept], remap)


@view(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
      aten.squeeze_copy.default, aten.squeeze_copy.dim, aten.squeeze_copy.dims)  # fmt: skip
def squeeze(call: Call) -> Tensor:
    """Without dimensions of size 1: all, or those of the given ones."""
    x, *more = call.args
    given = more[0] if more else range(len(x.size))
    wanted = [axis(d, len(x.size)) for d in ([given] if isinstance(given, int) else given)]
    return removed(x, [d for d in wanted if d < len(x.size) and x.size[d] == 1])


@view(aten.expand.default, aten.expand_copy.default)
def expand(call: Call) -> Tensor:
    """Dimensions of size 1 repeated."""
    return broadcast(call, call.args[0], call.size)


def broadcast(call: Call, x: Tensor, size: Sequence[Index]) -> Tensor:
    """``x`` as a tensor of ``size``."""
    if is_spread(x, size):
        call.builder.spread(x)
    return x.view(size, projected(x, size))


# --- parts ----------------------------------------------------------------------------------------------------------


def sliced(x: Tensor, dim: int, start: Index, size: Index, step: int = 1) -> Tensor:
    """``size`` elements from ``start`` on."""
    whole = start == 0 and step == 1 and size is x.size[dim]
    full = [*x.size[:dim], size, *x.size[dim + 1 :]]
    return x.view(full, lambda at: [*at[:dim], start + at[dim] * step, *at[dim + 1 :]], whole=whole)


def start_of(start: Any, size: Index) -> Index:
    """Where a slice begins, by Python's rules."""
    if start is None:
        return ZERO
    begin = index(start)
    low = begin.bounds()[0]
    if low is None or (low < 0 and begin.value is None):
        raise NoRule(f"a slice from {begin}, of unknown sign")
    if low < 0:
        begin = begin + size
        low = begin.bounds()[0]
        if low is None or low < 0:
            raise NoRule(f"a slice from {begin}, of unknown sign")
    return begin if at_most(begin, size) else min_(begin, size)


@view(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_(call: Call) -> Tensor:
    """``x[start:end:step]`` in one dimension."""
    x, dim, start, _, step = call.args
    dim = axis(dim, len(x.size))
    if not isinstance(step, int):
        raise NoRule("a slice with a symbolic step")
    return sliced(x, dim, slice_start(start, x.size[dim]), call.size[dim], step)


def slice_start(start: Any, size: Index) -> Index:
    """Where a slice begins; before the first element is at it."""
    if isinstance(start, int) and start < 0 and size.value is not None:
        start = max(start + size.value, 0)
    return start_of(start, size)


@view(aten.select.int, aten.select_copy.int)
def select(call: Call) -> Tensor:
    """One index of a dimension."""
    x, dim, at = call.args
    dim = axis(dim, len(x.size))
    return selected(x, dim, position_of(at, x.size[dim]))


def position_of(at: Any, size: Index) -> Index:
    """An index that may count from the end."""
    begin = index(at)
    low, high = begin.bounds()
    if high is not None and high < 0:
        return begin + size
    if low is None or low < 0:
        raise NoRule(f"an index {begin} of unknown sign")
    return begin


def selected(x: Tensor, dim: int, at: Index) -> Tensor:
    """One index of a dimension, which goes."""
    size = [*x.size[:dim], *x.size[dim + 1 :]]
    return x.view(size, lambda i: [*i[:dim], at, *i[dim:]], whole=x.size[dim] == 1)


@view(aten.split.Tensor, aten.split_with_sizes.default, aten.split_copy.Tensor, aten.split_with_sizes_copy.default,
      aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default)  # fmt: skip
def split(call: Call) -> list[Tensor]:
    """Consecutive parts; their sizes are those that eager gives."""
    x, _, dim = call.args
    dim = axis(dim, len(x.size))
    parts, start = [], ZERO
    for part in call.val:
        size = call.builder.sizes.index(part.shape[dim])
        parts.append(sliced(x, dim, start, size))
        start = start + size
    return parts


@view(aten.unbind.int, aten.unbind_copy.int)
def unbind(call: Call) -> list[Tensor]:
    """Each index of a dimension."""
    x, dim = call.args
    dim = axis(dim, len(x.size))
    return [selected(x, dim, index(n)) for n in range(len(call.val))]


@view(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(call: Call) -> Tensor:
    """The elements where two indices differ by a constant; their dimension is the last."""
    x, offset, a, b = call.args
    a, b = axis(a, len(x.size)), axis(b, len(x.size))
    rest = [d for d in range(len(x.size)) if d not in (a, b)]

    def remap(at: Shape) -> Sequence[Index]:
        full = [ZERO] * len(x.size)
        for d, i in zip(rest, at, strict=False):
            full[d] = i
        full[a] = at[-1] + max(-offset, 0)
        full[b] = at[-1] + max(offset, 0)
        return full

    return x.view(call.size, remap, whole=False)


@view(aten.unfold.default, aten.unfold_copy.default)
def unfold(call: Call) -> Tensor:
    """Windows of a dimension; the place in the window is the last dimension."""
    x, dim, _, step = call.args
    if not x.size:
        raise NoRule("windows of a single element")
    dim = axis(dim, len(x.size))
    call.builder.spread(x)
    return x.view(call.size, lambda at: [*at[:dim], at[dim] * step + at[-1], *at[dim + 1 : -1]])


@view(aten.as_strided.default, aten.as_strided_copy.default)
def as_strided(call: Call) -> Tensor:
    """Any places in the memory of a tensor that has all of it, in row-major order."""
    x, _, steps, first = call.args
    given = call.node.args[0].meta["val"]  # type: ignore[union-attr]
    own = given.is_contiguous() and (first is None or given.storage_offset() == 0)
    call.refuse_unless(own, "places in memory that is another tensor's")
    flat = reshaped(call.builder.spread(x), (count(x.size),))
    strides, begin = [call.index(s) for s in steps], index(0 if first is None else first)

    def place(at: Shape) -> Index:
        return functools.reduce(lambda total, pair: total + pair[0] * pair[1], zip(at, strides, strict=True), begin)

    last = place(tuple([n - 1 for n in call.size]))
    low, inside = begin.bounds()[0], at_most(last, count(x.size) - 1)
    call.refuse_unless(low is not None and low >= 0 and inside, "places that may be outside of the tensor")
    return flat.view(call.size, lambda at: [place(at)], whole=False)


# --- other shapes ---------------------------------------------------------------------------------------------------


@view(aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default,
      aten.view_copy.default)  # fmt: skip
def reshape(call: Call) -> Tensor:
    """The same elements in row-major order, in another shape."""
    return reshaped(call.args[0], call.size)


def reshaped(x: Tensor, size: Shape) -> Tensor:
    """The same elements in row-major order. Leading and trailing dimensions that stay need no arithmetic."""
    old, new = list(range(len(x.size))), list(range(len(size)))
    pairs: dict[int, int] = {}
    for end in (0, -1):
        while old and new:
            if x.size[old[end]] == 1:
                old.pop(end)
            elif size[new[end]] == 1:
                new.pop(end)
            elif x.size[old[end]] is size[new[end]]:
                pairs[old.pop(end)] = new.pop(end)
            else:
                break
    empty = any(s == 0 for s in (*x.size, *size))

    def remap(at: Shape) -> Sequence[Index]:
        full = [ZERO] * len(x.size)
        if empty:
            return full
        for mine, theirs in pairs.items():
            full[mine] = at[theirs]
        linear = ZERO
        for d in new:
            linear = linear * size[d] + at[d]
        for d in reversed(old):
            full[d] = linear % x.size[d] if d != old[0] else linear
            linear = linear // x.size[d]
        return full

    return x.view(size, remap)


@view(aten.view.dtype)
def bits(call: Call) -> Tensor:
    """The same bits as another dtype."""
    x, dtype = call.args
    if x.dtype is torch.bool or dtype is torch.bool or x.dtype.itemsize != dtype.itemsize:
        raise NoRule("a view in a dtype of another width")

    def element(at: Shape) -> Value:
        return x.load(at) if x.dtype is dtype else apply("bitcast", x.load(at), dtype=dtype)

    return call.result(element)


@copies(aten.flip.default)
def flip(call: Call) -> Tensor:
    """Dimensions backwards."""
    x, dims = call.args
    turned = {axis(d, len(x.size)) for d in dims}
    return _copy(call, x, lambda at: [x.size[d] - 1 - i if d in turned else i for d, i in enumerate(at)])


@copies(aten.repeat.default)
def repeat(call: Call) -> Tensor:
    """The tensor several times, side by side."""
    x = call.builder.spread(call.args[0])
    skipped = len(call.size) - len(x.size)
    empty = any(s == 0 for s in x.size)
    return _copy(call, x, lambda at: [ZERO if empty else i % s for i, s in zip(at[skipped:], x.size, strict=True)])


def _copy(call: Call, x: Tensor, remap: Callable[[Shape], Sequence[Index]]) -> Tensor:
    """Not a view in eager: memory of its own when somebody wants it in memory."""
    return call.result(lambda at: x.load(tuple(remap(at))))


@copies(aten.roll.default)
def roll(call: Call) -> Tensor:
    """Dimensions turned in a circle."""
    x, shifts, dims = call.args
    if any(not isinstance(s, int) for s in shifts):
        raise NoRule("rolled by a symbolic number")
    if not dims:
        flat = reshaped(x, (call.size[0],) if len(call.size) == 1 else (count(x.size),))
        turned = _turned(flat, {0: shifts[0]})
        flat_result = Tensor(flat.size, x.dtype, x.device, lambda at: flat.load(tuple(turned(at))))
        return call.result(reshaped(flat_result, call.size).load)
    steps: dict[int, int] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        steps[axis(dim, len(x.size))] = steps.get(axis(dim, len(x.size)), 0) + shift
    return _copy(call, x, _turned(x, steps))


def _turned(x: Tensor, steps: dict[int, int]) -> Callable[[Shape], Sequence[Index]]:
    empty = any(s == 0 for s in x.size)
    return lambda at: [(i - steps[d]) % x.size[d] if d in steps and not empty else i for d, i in enumerate(at)]


__all__ = ["COPIES", "VIEWS", "broadcast", "inserted", "permuted", "removed", "reshaped", "selected", "sliced"]
