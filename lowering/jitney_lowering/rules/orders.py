"""Rows of some hundred elements put in order: each element is a number in which its place comes last.

Such numbers are all different, and a row of them is sorted by itself (``loops.SCANS``). Of equal elements the first
comes first, as under ``stable=True``; else eager leaves that open. What is no number is greater than all numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, registering
from jitney_lowering.aten.picks import Picks
from jitney_lowering.aten.tensor import ONE, Shape, Tensor, contiguous, corner, count
from jitney_lowering.index import at_most
from jitney_lowering.ir.intervals import interval
from jitney_lowering.ir.loops import SORT
from jitney_lowering.ir.scalar import Scalar, ne, two, where
from jitney_lowering.ir.values import Value, apply, constant, position
from jitney_lowering.rules.gathers import prepare

aten = torch.ops.aten
ORDERS: dict[Any, Rule] = {}
LONGEST = 512  # elements of a row, which a warp has in its registers; twice as many where 32 bits hold number and place
ACROSS = 32  # elements of a row that lies side by side with others: a thread has all of it
BITS = {
    torch.float32: 32, torch.float16: 19, torch.bfloat16: 16, torch.int32: 32, torch.int16: 16, torch.int8: 8,
    torch.uint8: 9, torch.bool: 2,
}  # fmt: skip
"""Of the number that an element is, with its sign. A half is what is left of a float without the end that is zero."""
GREATEST = (1 << 31) - 1
Element = Callable[[Shape], Value]

order = registering(ORDERS)


class Row:
    """The rows of a tensor in order.

    Args:
        call: the operator, of which the tensor is the first argument.
        dim: along which.
        descending: the greatest first.
        stride: of what is kept of the order; None: row by row.

    Raises:
        NoRule: there is none for such rows.
    """

    def __init__(self, call: Call, dim: int, descending: bool = False, stride: Shape | None = None) -> None:
        x: Tensor = call.args[0]
        builder = call.builder
        call.refuse_unless(SORT in builder.policy.scans and bool(x.size), "no rule")
        self.x, self.dim, self.descending = x, axis(dim, len(x.size)), descending
        length, rows = x.size[self.dim].value, count([n for d, n in enumerate(x.size) if d != self.dim])
        self.width = BITS.get(x.dtype) or _width(call, x)
        call.refuse_unless(self.width > 0, "elements of 64 bits")
        call.refuse_unless(length is not None and length > 1, "rows of one element, or of a size that changes")
        call.refuse_unless(rows.value not in (0, 1), "a single row")
        stride = stride or contiguous(x.size)
        self.length = length or 0
        lies = x.strided.stride if x.strided is not None else x.wanted or stride
        across = stride[self.dim] is not ONE or lies[self.dim] is not ONE
        call.refuse_unless(not across or (builder.policy.scanned_across and self.length <= ACROSS), "rows side by side")
        self.shift = (self.length - 1).bit_length()
        self.kept = torch.int32 if self.width + self.shift <= 32 else torch.int64
        call.refuse_unless(self.length <= LONGEST * 8 // self.kept.itemsize, "long rows")
        prepare(call, x, [self.dim], x.size)
        keys = Tensor(x.size, self.kept, x.device, self._key)
        self.keys = builder.scan(SORT, keys, self.dim, self.kept, stride)
        places = Tensor(x.size, torch.int64, x.device, self.place)
        self.picks = Picks(builder, places, x.size[self.dim], "no place in a row")

    def at(self, at: Shape) -> Shape:
        """The index in the tensor of the element that comes there."""
        return (*at[: self.dim], self.picks.at(at), *at[self.dim + 1 :])

    def value(self, at: Shape) -> Value:
        """The element that comes there."""
        if self.x.dtype.is_floating_point:  # as it was: a key does not tell one zero, or no number, from another
            return self.x.load(self.at(at))
        number = two("shr", Scalar(self.keys.load(at)), self.shift)
        return _as(~number if self.descending else number, self.x.dtype)

    def place(self, at: Shape) -> Value:
        """Where it was."""
        number = (Scalar(self.keys.load(at)) & ((1 << self.shift) - 1)).to(torch.int64)
        return two("minimum", number, self.length - 1).value

    def _key(self, at: Shape) -> Value:
        number = Scalar(self.x.load(at))
        if number.is_float:
            wide = number.to(torch.float32)
            bits = Scalar(apply("bitcast", (wide + 0.0).value, dtype=torch.int32))  # there is one zero
            bits = where(ne(wide, wide), GREATEST, where(bits < 0, bits ^ GREATEST, bits))
            number = two("shr", bits, 32 - self.width)
        number = number.to(self.kept)
        number = two("shl", ~number if self.descending else number, self.shift)
        return (number | Scalar(position(at[self.dim], self.kept))).value


def _width(call: Call, x: Tensor) -> int:
    """Of integers of 64 bits that are known to need fewer, such as places in a row; else 0."""
    if x.dtype is not torch.int64:
        return 0
    low, high = interval(x.load(corner(x.size)), call.builder.limits)
    known = low is not None and high is not None and at_most(-GREATEST, low) and at_most(high, GREATEST)
    return BITS[torch.int32] if known else 0


def _as(x: Scalar, dtype: torch.dtype) -> Value:
    return (x.to_bool() if dtype is torch.bool else x.to(dtype)).value


@order(aten.sort.default)
def sort(call: Call) -> list[Tensor]:
    """All elements of each row, and where they were."""
    _, dim, descending = call.args
    return _all(call, dim, descending)


@order(aten.sort.stable)
def stable_sort(call: Call) -> list[Tensor]:
    """The same."""
    _, _, dim, descending = call.args
    return _all(call, dim, descending)


def _all(call: Call, dim: int, descending: bool) -> list[Tensor]:
    size = call.builder.sizes.shape
    row = Row(call, dim, descending, size(call.val[0].stride()))
    return _both(call, row.value, row.place)


@order(aten.topk.default)
def topk(call: Call) -> list[Tensor]:
    """The least or the greatest elements of each row; always in order."""
    x, k, dim, largest, _ = call.args
    call.refuse_unless(x.dtype is not torch.bool and isinstance(k, int), "truth values, or a symbolic number")
    row = Row(call, dim, largest)
    return _both(call, row.value, row.place)


@order(aten.kthvalue.default)
def kthvalue(call: Call) -> list[Tensor]:
    """One of each row, counted from 1."""
    x, k, dim, keepdim = call.args
    call.refuse_unless(x.dtype is not torch.bool and isinstance(k, int), "truth values, or a symbolic number")
    return _one(call, Row(call, dim), lambda at: constant(k - 1, torch.int64), keepdim)


@order(aten.median.dim)
def median(call: Call) -> list[Tensor]:
    """The lower one of two; of a row in which something is no number, the first such element."""
    x, dim, keepdim = call.args
    call.refuse_unless(x.dtype is not torch.bool, "truth values")
    row = Row(call, dim)
    middle = (row.length - 1) // 2
    if not x.dtype.is_floating_point:
        return _one(call, row, lambda at: constant(middle, torch.int64), keepdim)

    def missing(at: Shape) -> Value:
        number = Scalar(x.load(at))
        return ne(number, number).to(torch.int64).value

    absent = call.builder.reduce("sum", Tensor(x.size, torch.int64, x.device, missing), [row.dim])

    def there(at: Shape) -> Value:
        found = Scalar(absent.load(at))
        first = two("maximum", two("minimum", found.like(row.length) - found, row.length - 1), 0)
        return where(found > 0, first, middle).value

    return _one(call, row, there, keepdim)


def _one(call: Call, row: Row, there: Element, keepdim: bool) -> list[Tensor]:
    """Of each row the element at a place of the order."""
    size = row.x.size
    rest = tuple([n for d, n in enumerate(size) if d != row.dim])
    places = Tensor(rest, torch.int64, row.x.device, there)
    picks = Picks(call.builder, places, size[row.dim], "no place in a row")

    def whole(at: Shape) -> Shape:
        others = (*at[: row.dim], *at[row.dim + keepdim :])
        return (*others[: row.dim], picks.at(others), *others[row.dim :])

    return _both(call, lambda at: row.value(whole(at)), lambda at: row.place(whole(at)))


def _both(call: Call, value: Element, place: Element) -> list[Tensor]:
    size = call.builder.sizes.shape
    return [
        Tensor(size(val.shape), val.dtype, val.device, element, wanted=size(val.stride()))
        for val, element in zip(call.val, (value, place), strict=True)
    ]
