"""Reading at indices that tensors hold, where the source need not exist in memory.

Everywhere else the operator runs as a whole. A wrong index is an error in eager: here it is forced into range, so that
no load leaves the memory, and a check raises when the graph has run.
"""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, registering
from jitney_lowering.aten.tensor import ZERO, Shape, Tensor, corner, variables
from jitney_lowering.index import Index, min_
from jitney_lowering.ir.scalar import Scalar, eq, ne, where
from jitney_lowering.ir.values import Position, Value, constant, position, walk
from jitney_lowering.rules.creation import number
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
GATHERS: dict[Any, Rule] = {}


gathers = registering(GATHERS)


@gathers(aten.gather.default)
def gather(call: Call) -> Tensor:
    """``x[..., index, ...]`` for each element of an index tensor."""
    x, dim, at_index, _ = call.args
    call.refuse_unless(x.strided is None and bool(x.size), "the source is in memory")
    dim = axis(dim, len(x.size))
    size = x.size[dim]
    call.refuse_unless(size.value != 0, "a gather from nothing")
    _without_positions(call, x, dim)
    _refuse_outside(call, at_index, dim, size)

    def element(at: Shape) -> Value:
        found = call.builder.within(at_index.load(at), size)
        return x.load((*at[:dim], found, *at[dim + 1 :]))

    return call.result(element)


@gathers(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss(call: Call) -> list[Tensor]:
    """Minus the value of the target's class, weighted by class; the sum of the weights that counted."""
    x, target, weight, reduction, ignore = call.args
    if not isinstance(ignore, int):
        raise NoRule("a symbolic class to ignore")
    dim = 0 if len(x.size) == 1 else 1
    classes, compute = x.size[dim], opmath(x.dtype)
    call.refuse_unless(classes.value != 0, "a loss of no classes")
    _without_positions(call, x, dim)
    builder = call.builder

    def wrong(at: Shape) -> Value:
        t = Scalar(target.load(at))
        outside = (t < 0) | (t >= Scalar(position(classes, t.dtype)))
        return (outside & ne(t, ignore)).value

    builder.refuse(Tensor(target.size, torch.bool, target.device, wrong), "Target is out of bounds.", IndexError)

    def weights(at: Shape) -> Value:
        t = Scalar(target.load(at))
        one = Scalar(constant(1.0, compute))
        if weight is not None:
            one = Scalar(builder.cast(weight.load((builder.within(t.value, classes),)), compute))
        return where(eq(t, ignore), 0.0, one).value

    def losses(at: Shape) -> Value:
        found = builder.within(target.load(at), classes)
        picked = Scalar(builder.cast(x.load((*at[:dim], found, *at[dim:])), compute))
        loss = -picked if weight is None else -picked * Scalar(weights(at))
        return where(eq(Scalar(target.load(at)), ignore), 0.0, loss).value

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


def _without_positions(call: Call, x: Tensor, dim: int) -> None:
    """What depends on where an element is (``triu``, parts that are joined) is computed first.

    A loop's variable is a number there; a computed index can only be part of an address.
    """
    if x.strided is None:
        var = variables(x.size)[dim]
        values = walk(x.load(corner(x.size)))
        if any(isinstance(v, Position) and var in v.index.atoms for v in values):
            call.builder.realise(x)


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dtype is dtype:
        return x
    return Tensor(x.size, dtype, x.device, lambda at: Scalar(x.load(at)).to(dtype).value)


# --- writing at indices, one in each row ----------------------------------------------------------------------------


@gathers(aten.scatter.src, aten.scatter.value, aten.scatter_add.default)
def scatter(call: Call) -> Tensor:
    """One element of each row is replaced, or added to: a choice by position, for one index in each row."""
    x, dim, at_index, source, *_ = call.args
    call.refuse_unless(bool(x.size), "a scatter into a single element")
    ranks = {len(t.size) for t in (x, at_index, source) if isinstance(t, Tensor)}
    call.refuse_unless(len(ranks) == 1, "a single element among rows")
    dim = axis(dim, len(x.size))
    call.refuse_unless(at_index.size[dim] == 1, "not one index in each row")
    call.refuse_unless(all(s != 0 for s in at_index.size), "no index at all")
    adds = call.node.target is aten.scatter_add.default
    shorter = [d for d in range(len(x.size)) if d != dim and at_index.size[d] is not x.size[d]]
    _refuse_outside(call, at_index, dim, x.size[dim])

    def element(at: Shape) -> Value:
        row = list(at)
        row[dim] = ZERO
        for d in shorter:
            row[d] = min_(at[d], at_index.size[d] - 1)
        here = eq(Scalar(at_index.load(tuple(row))), Scalar(position(at[dim], at_index.dtype)))
        for d in shorter:
            here = here & (Scalar(position(at[d])) < Scalar(position(at_index.size[d])))
        old = Scalar(x.load(at))
        new = Scalar(source.load(tuple(row))) if isinstance(source, Tensor) else number(source, x.dtype)
        if adds:
            new = new | old if x.dtype is torch.bool else old + new
        return where(here, new, old).value

    return call.result(element)


def _refuse_outside(call: Call, at_index: Tensor, dim: int, size: Index) -> None:
    def wrong(at: Shape) -> Value:
        i = Scalar(at_index.load(at))
        return ((i < 0) | (i >= Scalar(position(size, i.dtype)))).value

    text = f"index out of bounds for dimension {dim} with size {size}"
    call.builder.refuse(Tensor(at_index.size, torch.bool, at_index.device, wrong), text, RuntimeError)
