"""Writing at indices that tensors hold.

One element of each row is a choice by position. All else are stores at computed places, or sums there, which threads do
at the same time (``Policy.scatters``): the order of what goes to one place is as open as on eager's GPUs, so with
deterministic algorithms the operators run as a whole, but where all is done in order (``Policy.scatters_in_order``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, projected, registering
from jitney_lowering.aten.picks import Picks
from jitney_lowering.aten.scattering import accumulated, scattered
from jitney_lowering.aten.tensor import ONE, ZERO, Shape, Tensor, corner, variables
from jitney_lowering.index import min_
from jitney_lowering.ir.scalar import Scalar, eq, ne, where
from jitney_lowering.ir.values import SCATTERED, Load, Position, Value, constant, cost, position, walk
from jitney_lowering.rules.creation import number
from jitney_lowering.rules.gathers import INDICES, indexed, of_dimension
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
SCATTERS: dict[Any, Rule] = {}


scatters = registering(SCATTERS)

COSTLY = 8  # what an element may cost (``cost``) where it is computed by the one thread that puts it in its place
REDUCTIONS = {name: kind for kind, name in SCATTERED.items()}


@scatters(aten.scatter.src, aten.scatter.value, aten.scatter_add.default)
def scatter(call: Call) -> Tensor:
    """``x[..., index[i], ...] = source[i]``, or the sum of both."""
    x, dim, at_index, source, *_ = call.args
    call.refuse_unless(bool(x.size), "a scatter into a single element")
    ranks = {len(t.size) for t in (x, at_index, source) if isinstance(t, Tensor)}
    call.refuse_unless(len(ranks) == 1, "a single element among rows")
    call.refuse_unless(all(s != 0 for s in at_index.size), "no index at all")
    dim = axis(dim, len(x.size))
    adds = call.node.target is aten.scatter_add.default
    if at_index.size[dim] == 1:
        return _chosen(call, x, dim, at_index, source, adds)
    return _along(call, x, dim, at_index, source, "sum" if adds else "store")


@scatters(aten.scatter_reduce.two)
def scatter_reduce(call: Call) -> Tensor:
    """A sum, or an extreme of integers, of what is there and of what comes."""
    x, dim, at_index, source, reduce, include_self = call.args
    call.refuse_unless(bool(x.size) and bool(at_index.size) and bool(source.size), "a single element")
    call.refuse_unless(all(s != 0 for s in at_index.size), "no index at all")
    call.refuse_unless(include_self and reduce in REDUCTIONS, "not together with what is there")
    return _along(call, x, axis(dim, len(x.size)), at_index, source, REDUCTIONS[reduce])


def _along(call: Call, x: Tensor, dim: int, at_index: Tensor, source: Any, kind: str) -> Tensor:
    allow(call, x, kind, mixed=isinstance(source, Tensor))
    rows = dim != len(x.size) - 1 and not _varies_along(at_index, len(x.size) - 1)
    known = rows or dim == len(x.size) - 1
    call.refuse_unless(call.builder.policy.scatters or known, "places of single elements")
    fits = not isinstance(source, Tensor) or source.dtype is x.dtype
    call.refuse_unless(fits and x.size[dim] != 0, "a source that does not fit")
    if call.builder.policy.scatters_in_order and not rows:
        _keep_costly(call, at_index, source)
    picks = of_dimension(call, at_index, dim, x.size[dim])

    def place(at: Shape) -> Shape:
        return (*at[:dim], picks.at(at), *at[dim + 1 :])

    return scattered(call.builder, x, at_index.size, place, _values(source, x.dtype), kind)


def _keep_costly(call: Call, *given: Any) -> None:
    """Compute side by side, before, what costs much: the elements go to their places one after the other."""
    for tensor in given:
        if isinstance(tensor, Tensor) and tensor.strided is None and cost(tensor.load(corner(tensor.size))) > COSTLY:
            call.builder.keep(tensor)


def _varies_along(index: Tensor, dim: int) -> bool:
    """Is the index of every element its own, rather than one for a row?"""
    var = variables(index.size)[dim]
    loads = [v for v in walk(index.load(corner(index.size))) if isinstance(v, (Load, Position))]
    return index.size[dim] != 1 and any(var in v.index.atoms for v in loads)


def _values(source: Any, dtype: torch.dtype) -> Callable[[Shape], Value]:
    if isinstance(source, Tensor):
        return source.load
    element = _element(source, dtype).value
    return lambda at: element


def _element(value: Any, dtype: torch.dtype) -> Scalar:
    """A number as an element; one that the dtype does not hold is an error, which the operator tells."""
    if isinstance(value, int) and dtype is not torch.bool and not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        if not limits.min <= value <= limits.max:
            raise NoRule(f"{value} as {str(dtype).removeprefix('torch.')}")
    return number(value, dtype)


def _chosen(call: Call, x: Tensor, dim: int, at_index: Tensor, source: Any, adds: bool) -> Tensor:
    """One element of each row is replaced, or added to: a choice by position."""
    shorter = [d for d in range(len(x.size)) if d != dim and at_index.size[d] is not x.size[d]]
    picks = of_dimension(call, at_index, dim, x.size[dim])
    given = None if isinstance(source, Tensor) else _element(source, x.dtype)

    def element(at: Shape) -> Value:
        row = list(at)
        row[dim] = ZERO
        for d in shorter:
            row[d] = min_(at[d], at_index.size[d] - 1)
        here = eq(Scalar(picks.value(tuple(row))), Scalar(position(at[dim], torch.int64)))
        for d in shorter:
            here = here & (Scalar(position(at[d])) < Scalar(position(at_index.size[d])))
        old = Scalar(x.load(at))
        new = Scalar(source.load(tuple(row))) if given is None else given
        if adds:
            new = new | old if x.dtype is torch.bool else old + new
        return where(here, new, old).value

    return call.result(element)


@scatters(aten.index_add.default, aten.index_copy.default)
def index_add(call: Call) -> Tensor:
    """``x[..., index, ...] += alpha * source``, or the source in its place."""
    x, dim, row, source, *alpha = call.args
    call.refuse_unless(bool(x.size) and bool(source.size), "a single element")
    dim, kind = axis(dim, len(x.size)), "sum" if alpha else "store"
    call.refuse_unless(source.dtype is x.dtype and x.size[dim] != 0, "a source that does not fit")
    call.refuse_unless(all(s != 0 for s in source.size), "no index at all")
    call.refuse_unless_sized(source.size, (*x.size[:dim], row.size[0] if row.size else ONE, *x.size[dim + 1 :]))
    allow(call, x, kind)
    picks = Picks(call.builder, row, x.size[dim], "index out of range in self", IndexError)

    def place(at: Shape) -> Shape:
        return (*at[:dim], picks.at((at[dim],) if row.size else ()), *at[dim + 1 :])

    def value(at: Shape) -> Value:
        given = Scalar(source.load(at))
        return (given * number(alpha[0], x.dtype)).value if alpha and alpha[0] != 1 else given.value

    return scattered(call.builder, x, source.size, place, value, kind)


@scatters(aten.index_fill.int_Scalar)
def index_fill(call: Call) -> Tensor:
    """``x[..., index, ...] = number``."""
    x, dim, row, value = call.args
    dim = axis(dim, len(x.size))
    call.refuse_unless(bool(x.size) and x.size[dim] != 0, "a single element")
    space = (*x.size[:dim], row.size[0] if row.size else ONE, *x.size[dim + 1 :])
    call.refuse_unless(all(s != 0 for s in space), "no index at all")
    allow(call, x, "store", mixed=False)
    text = f"index out of bounds for dimension {dim} with size {x.size[dim]}"
    picks = Picks(call.builder, row, x.size[dim], text, IndexError, wraps=True)
    element = _element(value, x.dtype).value

    def place(at: Shape) -> Shape:
        return (*at[:dim], picks.at((at[dim],) if row.size else ()), *at[dim + 1 :])

    return scattered(call.builder, x, space, place, lambda at: element)


@scatters(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(call: Call) -> Tensor:
    """``x[indices] = values``, or ``+=``; indices and values are broadcast."""
    x, indices, values, accumulate = call.args
    dims = [d for d, i in enumerate(indices) if i is not None]
    call.refuse_unless(bool(dims) and all(indices[d].dtype in INDICES for d in dims), "chosen by truth values")
    kind = "sum" if accumulate else "store"
    allow(call, x, kind)
    call.refuse_unless(values.dtype is x.dtype and all(x.size[d] != 0 for d in dims), "values that do not fit")
    space = _picked_size(x.size, {d: indices[d].size for d in dims})
    call.refuse_unless(all(s != 0 for s in space), "no index at all")
    call.refuse_unless(len(values.size) <= len(space), "values with more dimensions")
    last = space[len(space) - len(values.size) :]
    call.refuse_unless_sized(values.size, [one if one == 1 else n for one, n in zip(values.size, last, strict=True)])
    onto = projected(values, space)
    place = indexed(call, x.size, indices, space)
    return scattered(call.builder, x, space, place, lambda at: values.load(onto(at)), kind)


def _picked_size(size: Shape, indices: Mapping[int, Shape]) -> Shape:
    """Of ``x[indices]``, from the size of ``x`` and those of its indices by dimension."""
    dims = list(indices)
    rank = max(len(s) for s in indices.values())
    aligned = [(ONE,) * (rank - len(s)) + s for s in indices.values()]
    common = [next((s for s in several if s != 1), ONE) for several in zip(*aligned, strict=True)]
    rest = [s for d, s in enumerate(size) if d not in indices]
    start = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    return (*rest[:start], *common, *rest[start:])


@scatters(aten.embedding_dense_backward.default)
def embedding_dense_backward(call: Call) -> Tensor:
    """The gradient of a table whose rows were picked."""
    grad, rows, _, padding, by_frequency = call.args
    call.refuse_unless(not by_frequency, "scaled by frequency")
    call.refuse_unless(isinstance(padding, int), "a symbolic row of padding")
    call.refuse_unless(all(s != 0 for s in grad.size), "no index at all")
    zero = constant(0, call.dtype)
    table = Tensor(call.size, call.dtype, grad.device, lambda at: zero, wanted=call.stride)
    allow(call, table, "sum")
    picks = Picks(call.builder, rows, call.size[0], "index out of range in self", IndexError)

    def counts(at: Shape) -> Value:
        return ne(Scalar(picks.value(at[:-1])), padding).value

    def place(at: Shape) -> Shape:
        return (picks.at(at[:-1]), at[-1])

    return scattered(call.builder, table, grad.size, place, grad.load, "sum", counts if padding >= 0 else None)


def allow(call: Call, x: Tensor, kind: str, *, mixed: bool = True) -> None:
    """Raise ``NoRule`` if there is no kernel for that. ``mixed``: are values different?"""
    policy = call.builder.policy
    call.refuse_unless(policy.scatters or policy.scatters_in_order, "stores at computed places")
    call.refuse_unless(accumulated(kind, x.dtype) is not None, f"a {kind} of {str(x.dtype).removeprefix('torch.')}")
    open_order = mixed and (kind == "store" or x.dtype.is_floating_point) and not policy.scatters_in_order
    deterministic = torch.are_deterministic_algorithms_enabled()
    call.refuse_unless(not (deterministic and open_order), "deterministic algorithms are asked for")
