"""Where numbers are in sorted rows, as a fixed number of steps of a binary search; and products of vectors of three."""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, projected, registering
from jitney_lowering.aten.tensor import Shape, Tensor
from jitney_lowering.index import fits_int32
from jitney_lowering.ir.scalar import Scalar, where
from jitney_lowering.ir.values import Value, apply, constant, position
from jitney_lowering.rules.gathers import at_computed_places

aten = torch.ops.aten
SEARCHES: dict[Any, Rule] = {}
LONGEST = 1 << 20  # elements of a row


searches = registering(SEARCHES)


@searches(aten.searchsorted.Tensor)
def searchsorted(call: Call) -> Tensor:
    """For each number the first place of its row where it could be put in."""
    row, numbers, _, right, side, sorter = call.args
    call.refuse_unless(sorter is None, "a row in another order")
    return _places(call, row, numbers, right or side == "right")


@searches(aten.bucketize.Tensor)
def bucketize(call: Call) -> Tensor:
    """The same for one row of limits."""
    numbers, row, _, right = call.args
    return _places(call, row, numbers, right)


def _places(call: Call, row: Tensor, numbers: Tensor, right: bool) -> Tensor:
    size = row.size[-1]
    call.refuse_unless(row.dtype is numbers.dtype and row.dtype is not torch.bool, "numbers of another dtype")
    call.refuse_unless(size.value is not None and 0 < size.value <= LONGEST, "a row of unknown length")
    assert size.value is not None
    steps = size.value.bit_length()
    call.refuse_unless(call.builder.policy.fused_gathers, "picked from memory")
    row = at_computed_places(call, call.builder.spread(row), [len(row.size) - 1])
    number = torch.int32 if fits_int32(size) else torch.int64

    def element(at: Shape) -> Value:
        wanted = Scalar(numbers.load(at))
        one, low, high = constant(1, number), Scalar(constant(0, number)), Scalar(position(size, number))
        for _ in range(steps):
            middle = low + Scalar(apply("shr", (high - low).value, one))
            first = at[:-1] if len(row.size) > 1 else ()
            there = Scalar(row.load((*first, call.builder.within(middle.value, size))))
            # What is no number is after all numbers.
            after = (low < high) & ~((there > wanted) if right else (there >= wanted))
            stays = (low < high) & ~after
            low, high = where(after, middle + 1, low), where(stays, middle, high)
        return low.to(call.dtype).value

    return call.result(element)


@searches(aten.linalg_cross.default)
def cross(call: Call) -> Tensor:
    """The product of vectors of three elements; of halves each step is rounded."""
    a, b, dim = call.args
    dim = axis(dim, len(call.size))
    call.refuse_unless(call.dtype.is_floating_point and a.dtype is b.dtype and call.size[dim] == 3, "whole numbers")
    operands = [(call.builder.spread(x), projected(x, call.size)) for x in (a, b)]

    def element(at: Shape) -> Value:
        def part(which: int, ahead: int) -> Scalar:
            x, onto = operands[which]
            place = (*at[:dim], (at[dim] + ahead) % 3, *at[dim + 1 :])
            return Scalar(x.load(onto(place)))

        return (part(0, 1) * part(1, 2) - part(0, 2) * part(1, 1)).value

    return call.result(element)
