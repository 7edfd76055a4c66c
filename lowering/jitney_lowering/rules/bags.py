"""Sums and means of rows of a table, bag by bag, and their gradients.

Bags of one size are a dimension. Which bag an index is in is known of others only once they have been added up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, registering
from jitney_lowering.aten.picks import Picks
from jitney_lowering.aten.scattering import scattered
from jitney_lowering.aten.tensor import Shape, Tensor, corner, variables
from jitney_lowering.index import Index
from jitney_lowering.ir.scalar import Scalar, maximum, ne, where
from jitney_lowering.ir.values import Apply, Constant, Position, Value, constant, position
from jitney_lowering.rules.gathers import at_computed_places
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.rules.scatters import allow
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
BAGS: dict[Any, Rule] = {}
SUM, MEAN = 0, 1
_OUTSIDE = "index out of range in self"


bags = registering(BAGS)


@bags(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(call: Call) -> list[Tensor]:
    """Sums or means of bags; the bag of each index; the sizes of bags; what extremes alone have."""
    weight, rows, offsets, _, mode, _, shares, last, padding = call.args
    call.refuse_unless(mode in (SUM, MEAN) and not last, "bags of another kind")
    call.refuse_unless(isinstance(padding, int), "a symbolic row of padding")
    call.refuse_unless(call.builder.policy.fused_bags, "bags of rows in memory")
    call.refuse_unless(weight.size[0] != 0, "an empty table")
    count, length, compute = offsets.size[0], _length(offsets, rows), opmath(weight.dtype)
    weight = at_computed_places(call, weight, [0])
    picks = Picks(call.builder, rows, weight.size[0], _OUTSIDE)

    def counts(i: Index) -> Scalar:
        return ne(Scalar(picks.value((i,))), padding)

    def one(at: Shape) -> Value:
        bag, n, d = at
        i = bag * length + n
        value = Scalar(weight.load((picks.at((i,)), d))).to(compute)
        if shares is not None:
            value = value * Scalar(shares.load((i,))).to(compute)
        return (value if padding < 0 else where(counts(i), value, 0.0)).value

    table = Tensor((count, length, weight.size[1]), compute, weight.device, one)
    total = call.builder.reduce("sum", table, [1])
    number = Tensor((count,), torch.int64, weight.device, lambda at: position(length))
    if padding >= 0:
        each = Tensor(
            (count, length),
            torch.int64,
            weight.device,
            lambda at: counts(at[0] * length + at[1]).to(torch.int64).value,
        )
        number = call.builder.reduce("sum", each, [1])

    def result(at: Shape) -> Value:
        value = Scalar(total.load(at))
        if mode == MEAN:
            value = value / maximum(Scalar(number.load(at[:1])), 1).to(compute)
        return value.to(weight.dtype).value

    if mode == SUM and weight.device.type == "cpu":  # whose kernel does not count
        number = Tensor((count,), torch.int64, weight.device, lambda at: constant(0, torch.int64))
    return _results(call, result, length, number)


def _results(call: Call, result: Callable[[Shape], Value], length: Index, number: Tensor) -> list[Tensor]:
    """``number``: of the rows in each bag; the CPU's kernel gives it in place of the rows of extremes, too."""
    _, places, sizes, _ = call.val

    def place(at: Shape) -> Value:
        return Scalar(position(at[0] // length)).to(places.dtype).value

    def size(at: Shape) -> Value:
        return Scalar(number.load(at)).to(sizes.dtype).value

    elements = (result, place, size, size)
    shape = call.builder.sizes.shape
    return [
        Tensor(shape(v.shape), v.dtype, v.device, element, wanted=shape(v.stride()))
        for v, element in zip(call.val, elements, strict=True)
    ]


def _length(offsets: Tensor, rows: Tensor) -> Index:
    """The size of each bag, if it is known to be the same for all."""
    value = offsets.load(corner(offsets.size))
    while isinstance(value, Apply) and value.op == "cast":
        (value,) = value.args
    if isinstance(value, Constant) and value.value == 0 and offsets.size[0] == 1:
        return rows.size[0]
    (var,) = variables(offsets.size)
    length = value.index.stride(var) if isinstance(value, Position) else None
    if length is None or not isinstance(value, Position) or value.index is not var * length:
        raise NoRule("bags of different sizes")
    if offsets.size[0] * length is not rows.size[0] or length == 0:
        raise NoRule("bags of different sizes")
    return length


def _bag(call: Call, offsets: Tensor, places: Tensor, rows: Tensor, count: Index) -> Callable[[Index], Index]:
    """From the number of an index to its bag."""
    if places.size[0] is rows.size[0] and places.size[0] != 0:
        return lambda i: call.builder.within(Scalar(places.load((i,))).to(torch.int64).value, count)
    length = _length(offsets, rows)
    return lambda i: i // length


@bags(aten._embedding_bag_backward.default)
def embedding_bag_backward(call: Call) -> Tensor:
    """The gradient of the table."""
    grad, rows, offsets, places, sizes, _, _, by_frequency, mode, sparse, shares, padding = call.args
    call.refuse_unless(mode in (SUM, MEAN) and not by_frequency and not sparse, "gradients of another kind")
    call.refuse_unless(isinstance(padding, int), "a symbolic row of padding")
    call.refuse_unless(all(s != 0 for s in (*grad.size, *rows.size, *call.size)), "no index at all")
    zero = constant(0, call.dtype)
    table = Tensor(call.size, call.dtype, grad.device, lambda at: zero, wanted=call.stride)
    allow(call, table, "sum")
    compute = opmath(call.dtype)
    bag = _bag(call, offsets, places, rows, grad.size[0])
    grad, sizes = at_computed_places(call, grad, [0]), at_computed_places(call, sizes, [0])
    picks = Picks(call.builder, rows, call.size[0], _OUTSIDE)

    def value(at: Shape) -> Value:
        i, d = at
        made = Scalar(grad.load((bag(i), d))).to(compute)
        if shares is not None:
            made = made * Scalar(shares.load((i,))).to(compute)
        if mode == MEAN:
            made = made / maximum(Scalar(sizes.load((bag(i),))), 1).to(compute)
        return made.to(call.dtype).value

    def counts(at: Shape) -> Value:
        return ne(Scalar(picks.value(at[:1])), padding).value

    space = (rows.size[0], grad.size[1])
    mask = counts if padding >= 0 else None
    return scattered(call.builder, table, space, lambda at: (picks.at(at[:1]), at[1]), value, "sum", mask)


@bags(aten._embedding_bag_per_sample_weights_backward.default)
def shares_backward(call: Call) -> Tensor:
    """The gradient of each index' share: the product of its row and the bag's gradient."""
    grad, weight, rows, offsets, places, mode, padding = call.args
    call.refuse_unless(mode == SUM and isinstance(padding, int), "bags of another kind")
    call.refuse_unless(call.builder.policy.fused_bags, "bags of rows in memory")
    call.refuse_unless(all(s != 0 for s in (*grad.size, *rows.size, *weight.size)), "no index at all")
    compute = opmath(call.dtype)
    bag = _bag(call, offsets, places, rows, grad.size[0])
    grad, weight = at_computed_places(call, grad, [0]), at_computed_places(call, weight, [0])
    picks = Picks(call.builder, rows, weight.size[0], _OUTSIDE)

    def one(at: Shape) -> Value:
        i, d = at
        row = Scalar(weight.load((picks.at((i,)), d))).to(compute)
        return (Scalar(grad.load((bag(i), d))).to(compute) * row).value

    total = call.builder.reduce("sum", Tensor((rows.size[0], grad.size[1]), compute, grad.device, one), [1])

    def element(at: Shape) -> Value:
        made = Scalar(total.load(at))
        if padding >= 0:
            made = where(ne(Scalar(picks.value(at)), padding), made, 0.0)
        return made.to(call.dtype).value

    return call.result(element)
