"""Reading at indices that tensors hold: loads at computed places.

The source need not exist in memory. Where it does, the policy says whether the operator runs as a whole. A wrong index
is an error in eager: here it is forced into range, so that no load leaves the memory, and checked (``picks.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, projected, registering
from jitney_lowering.aten.picks import Picks
from jitney_lowering.aten.tensor import Shape, Tensor, corner, count, variables
from jitney_lowering.index import Index
from jitney_lowering.index_value import at_computed_place
from jitney_lowering.ir.scalar import Scalar, eq, ne, where
from jitney_lowering.ir.values import Load, Position, Value, constant, position, walk
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.rules.views import reshaped
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
GATHERS: dict[Any, Rule] = {}
INDICES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})
FEW = 2  # of so many elements one is picked: the others need not be computed


gathers = registering(GATHERS)


@gathers(aten.gather.default)
def gather(call: Call) -> Tensor:
    """``x[..., index, ...]`` for each element of an index tensor."""
    x, dim, at_index, _ = call.args
    dim = axis(dim, len(x.size))
    call.refuse_unless(bool(x.size) and len(x.size) == len(at_index.size), "a single element")
    source = prepare(call, x, [dim], call.size)
    picks = of_dimension(call, at_index, dim, x.size[dim], depends(x, dim))
    return call.result(lambda at: source.load((*at[:dim], picks.at(at), *at[dim + 1 :])))


@gathers(aten.index_select.default)
def index_select(call: Call) -> Tensor:
    """``x[..., index, ...]`` for a row of indices."""
    x, dim, row = call.args
    dim = axis(dim, len(x.size))
    call.refuse_unless(bool(x.size), "a single element")
    source = prepare(call, x, [dim], call.size)
    text = "index out of range in self"
    picks = Picks(call.builder, row, x.size[dim], text, IndexError, used=depends(x, dim))

    def element(at: Shape) -> Value:
        return source.load((*at[:dim], picks.at((at[dim],) if row.size else ()), *at[dim + 1 :]))

    return call.result(element)


@gathers(aten.embedding.default)
def embedding(call: Call) -> Tensor:
    """A row of the table for each index."""
    table, rows, *_ = call.args
    source = prepare(call, table, [0], call.size)
    text = "index out of range in self"
    picks = Picks(call.builder, rows, table.size[0], text, IndexError, used=depends(table, 0))
    return call.result(lambda at: source.load((picks.at(at[:-1]), at[-1])))


@gathers(aten.take.default)
def take(call: Call) -> Tensor:
    """Elements by their number in row-major order."""
    x, places = call.args
    flat = reshaped(x, (count(x.size),))
    source = prepare(call, flat, [0], call.size)
    text, used = "out of range: take", depends(flat, 0)
    picks = Picks(call.builder, places, flat.size[0], text, IndexError, wraps=True, used=used)
    return call.result(lambda at: source.load((picks.at(at),)))


@gathers(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(call: Call) -> Tensor:
    """``x[i, :, j]`` with index tensors that are broadcast together; truth values choose as many as there are."""
    x, indices = call.args
    dims = [d for d, i in enumerate(indices) if i is not None]
    call.refuse_unless(all(indices[d].dtype in INDICES for d in dims), "chosen by truth values")
    call.refuse_unless(bool(dims), "no indices")
    source = prepare(call, x, dims, call.size)
    found = indexed(call, x.size, indices, call.size, {d for d in dims if not depends(x, d)})
    return call.result(lambda at: source.load(found(at)))


def depends(x: Tensor, dim: int) -> bool:
    """Does an element of the tensor depend on its index of a dimension?"""
    var = variables(x.size)[dim]
    return any(isinstance(v, (Load, Position)) and var in v.index.atoms for v in walk(x.load(corner(x.size))))


def indexed(
    call: Call, size: Shape, indices: Sequence[Tensor | None], whole: Shape, same: Collection[int] = ()
) -> Callable[[Shape], Shape]:
    """From an index of ``x[indices]``, which has the size ``whole``, to one of ``x``, which has the size ``size``.

    The dimensions of the broadcast indices come first, unless these stand side by side. ``same``: those along which all
    elements are the same.
    """
    dims = [d for d, i in enumerate(indices) if i is not None]
    rank = len(whole) - (len(size) - len(dims))
    start = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    common = whole[start : start + rank]
    picks: dict[int, Callable[[Shape], Index]] = {}
    for d in dims:
        tensor = indices[d]
        assert tensor is not None
        text = f"index out of bounds for dimension {d} with size {size[d]}"
        found = Picks(call.builder, tensor, size[d], text, IndexError, wraps=True, used=d not in same)
        picks[d] = functools.partial(_picked, found, projected(tensor, common))

    def element(at: Shape) -> Shape:
        rest = iter((*at[:start], *at[start + rank :]))
        return tuple([picks[d](at[start : start + rank]) if d in picks else next(rest) for d in range(len(size))])

    return element


def _picked(picks: Picks, onto: Callable[[Shape], Shape], at: Shape) -> Index:
    return picks.at(onto(at))


def of_dimension(call: Call, at_index: Tensor, dim: int, size: Index, used: bool = True) -> Picks:
    """Indices of ``gather`` and ``scatter``; ``used``: see ``Picks``."""
    text = f"index out of bounds for dimension {dim} with size {size}"
    return Picks(call.builder, at_index, size, text, used=used)


def prepare(call: Call, x: Tensor, dims: Sequence[int], size: Shape) -> Tensor:
    """The same elements, to be read at computed places along these dimensions; or ``NoRule``.

    ``size``: of what is picked.
    """
    builder = call.builder
    call.refuse_unless(all(x.size[d] != 0 for d in dims), "a gather from nothing")
    few = builder.sizes.hint(count(size)) * FEW <= builder.sizes.hint(count(x.size))
    if not builder.policy.fused_gathers:
        call.refuse_unless(x.strided is None and few, "the source is in memory")
    if not few:
        builder.spread(x)
    return at_computed_places(call, x, dims)


@gathers(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss(call: Call) -> list[Tensor]:
    """Minus the value of the target's class, weighted by class; the sum of the weights that counted."""
    x, target, weight, reduction, ignore = call.args
    if not isinstance(ignore, int):
        raise NoRule("a symbolic class to ignore")
    dim = 0 if len(x.size) == 1 else 1
    classes, compute = x.size[dim], opmath(x.dtype)
    call.refuse_unless(classes.value != 0, "a loss of no classes")
    source = at_computed_places(call, x, [dim])
    weight = weight if weight is None else at_computed_places(call, weight, [0])
    builder = call.builder

    def wrong(t: Value) -> Value:
        outside = (Scalar(t) < 0) | (Scalar(t) >= Scalar(position(classes, t.dtype)))
        return (outside & ne(Scalar(t), ignore)).value

    numbers = builder.guarded(target, wrong, "Target is out of bounds.", IndexError)

    def weights(at: Shape) -> Value:
        t = Scalar(numbers(at))
        one = Scalar(constant(1.0, compute))
        if weight is not None:
            one = Scalar(builder.cast(weight.load((builder.within(t.value, classes),)), compute))
        return where(eq(t, ignore), 0.0, one).value

    def losses(at: Shape) -> Value:
        found = builder.within(numbers(at), classes)
        picked = Scalar(builder.cast(source.load((*at[:dim], found, *at[dim:])), compute))
        loss = -picked if weight is None else -picked * Scalar(weights(at))
        return where(eq(Scalar(numbers(at)), ignore), 0.0, loss).value

    each = Tensor(target.size, compute, x.device, losses)
    counted = Tensor(target.size, compute, x.device, weights)
    dtype = call.val[0].dtype
    if reduction == 0:
        zero = constant(0.0, dtype)
        return [_cast(each, dtype), Tensor((), dtype, x.device, lambda at: zero)]
    every = range(len(target.size))
    total, share = builder.reduce("sum", each, every), builder.reduce("sum", counted, every)
    if reduction == 2:
        return [_cast(total, dtype), _cast(share, dtype)]

    def mean(at: Shape) -> Value:
        return (Scalar(total.load(at)) / Scalar(share.load(at))).to(dtype).value

    return [Tensor((), dtype, x.device, mean), _cast(share, dtype)]


def at_computed_places(call: Call, x: Tensor, dims: Sequence[int]) -> Tensor:
    """The same elements, to be read at computed places along these dimensions.

    An element may depend on where it is (``triu``, parts that are joined): a loop's variable is a number there, and so
    is what is computed in its place.
    """
    every, atoms = variables(x.size), call.builder.atoms
    own = {every[d] for d in dims}
    values = () if x.strided is not None and not x.paired else walk(x.load(corner(x.size)))
    if not any(isinstance(v, Position) and own & v.index.atoms for v in values):
        return x
    if x.paired and not x.dtype.is_complex:  # of complex elements: which of the two depends on where it is
        x.lies(call.builder.realise(x), atoms)
        return x
    return Tensor(x.size, x.dtype, x.device, lambda at: at_computed_place(x.load(at), atoms))


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dtype is dtype:
        return x
    return Tensor(x.size, dtype, x.device, lambda at: Scalar(x.load(at)).to(dtype).value)
