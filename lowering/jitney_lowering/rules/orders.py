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
from jitney_lowering.index import at_most, index
from jitney_lowering.ir.intervals import interval
from jitney_lowering.ir.loops import SORT
from jitney_lowering.ir.scalar import Scalar, eq, ne, two, where
from jitney_lowering.ir.values import Value, apply, constant, position
from jitney_lowering.rules.gathers import prepare
from jitney_lowering.rules.views import inserted

aten = torch.ops.aten
ORDERS: dict[Any, Rule] = {}
LONGEST = 512  # elements of a row, which a warp has in its registers; twice as many where 32 bits hold number and place
ACROSS = 32  # elements of a row that lies side by side with others: a thread has all of it
FEW = 8  # elements of a row that are wanted: the keys of others are not written
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
        number: of elements of each row that are wanted; None: all.

    Raises:
        NoRule: there is none for such rows.
    """

    def __init__(
        self,
        call: Call,
        dim: int,
        descending: bool = False,
        stride: Shape | None = None,
        number: int | None = None,
    ) -> None:
        x: Tensor = call.args[0]
        builder = call.builder
        call.refuse_unless(SORT in builder.policy.scans and bool(x.size), "no rule")
        self.call, self.x, self.dim, self.descending = call, x, axis(dim, len(x.size)), descending
        self.few = number if number is not None and 0 < number <= FEW else None
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
        picked = x.size[self.dim] if self.few is None else index(self.few)
        self.source = prepare(call, x, [self.dim], (*x.size[: self.dim], picked, *x.size[self.dim + 1 :]))
        keys = Tensor(x.size, self.kept, x.device, self._key)
        self.keys = builder.scan(SORT, keys, self.dim, self.kept, stride)

    def first(self) -> list[Tensor]:
        """The elements that are wanted, in order, and where they were. Of the keys of a few, only these are kept."""
        if self.few is None:
            return self._of(self.keys, self.dim)
        size, call = self.x.size, self.call
        kept = (*size[: self.dim], index(self.few), *size[self.dim + 1 :])
        each = [inserted(self._key_at(_always(n)), self.dim) for n in range(self.few)]
        return self._of(call.builder.joined(each, self.dim, kept, contiguous(kept)), self.dim)

    def one(self, there: Element, keepdim: bool) -> list[Tensor]:
        """The element at a place of the order, which may be another one in each row."""
        key = self._key_at(there)
        return self._of(inserted(key, self.dim) if keepdim else key, self.dim if keepdim else None)

    def _key_at(self, there: Element) -> Tensor:
        least = -1 << self.kept.itemsize * 8 - 1

        def only(at: Shape) -> Value:
            wanted = Scalar(there((*at[: self.dim], *at[self.dim + 1 :])))
            return where(eq(wanted, Scalar(position(at[self.dim]))), Scalar(self.keys.load(at)), least).value

        return self.call.builder.reduce("max", Tensor(self.x.size, self.kept, self.x.device, only), [self.dim])

    def _of(self, keys: Tensor, dim: int | None) -> list[Tensor]:
        """The elements that these keys are of, and where they were; ``dim``: that of the rows, if there is one."""
        x, builder = self.x, self.call.builder

        def place(at: Shape) -> Value:
            number = (Scalar(keys.load(at)) & ((1 << self.shift) - 1)).to(torch.int64)
            return two("minimum", number, self.length - 1).value

        picks = Picks(builder, Tensor(keys.size, torch.int64, x.device, place), x.size[self.dim], "no place in a row")

        def value(at: Shape) -> Value:
            if x.dtype.is_floating_point:  # as it was: a key does not tell one zero, or no number, from another
                rest = at[self.dim :] if dim is None else at[self.dim + 1 :]
                return self.source.load((*at[: self.dim], picks.at(at), *rest))
            number = two("shr", Scalar(keys.load(at)), self.shift)
            return _as(~number if self.descending else number, x.dtype)

        size = builder.sizes.shape
        return [
            Tensor(size(val.shape), val.dtype, val.device, element, wanted=size(val.stride()))
            for val, element in zip(self.call.val, (value, place), strict=True)
        ]

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


def _always(number: int) -> Element:
    return lambda at: constant(number, torch.int64)


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
    return Row(call, dim, descending, call.builder.sizes.shape(call.val[0].stride())).first()


@order(aten.topk.default)
def topk(call: Call) -> list[Tensor]:
    """The least or the greatest elements of each row; always in order."""
    x, k, dim, largest, _ = call.args
    call.refuse_unless(x.dtype is not torch.bool and isinstance(k, int), "truth values, or a symbolic number")
    return Row(call, dim, largest, number=k).first()


@order(aten.kthvalue.default)
def kthvalue(call: Call) -> list[Tensor]:
    """One of each row, counted from 1."""
    x, k, dim, keepdim = call.args
    call.refuse_unless(x.dtype is not torch.bool and isinstance(k, int), "truth values, or a symbolic number")
    return Row(call, dim, number=1).one(_always(k - 1), keepdim)


@order(aten.median.dim)
def median(call: Call) -> list[Tensor]:
    """The lower one of two; of a row in which something is no number, the first such element."""
    x, dim, keepdim = call.args
    call.refuse_unless(x.dtype is not torch.bool, "truth values")
    row = Row(call, dim, number=1)
    middle = (row.length - 1) // 2
    if not x.dtype.is_floating_point:
        return row.one(_always(middle), keepdim)

    def missing(at: Shape) -> Value:
        number = Scalar(x.load(at))
        return ne(number, number).to(torch.int64).value

    absent = call.builder.reduce("sum", Tensor(x.size, torch.int64, x.device, missing), [row.dim])

    def there(at: Shape) -> Value:
        found = Scalar(absent.load(at))
        first = two("maximum", two("minimum", found.like(row.length) - found, row.length - 1), 0)
        return where(found > 0, first, middle).value

    return row.one(there, keepdim)
