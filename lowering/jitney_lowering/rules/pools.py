"""Pooling: of small windows one value per element of the result; the edges come from a padded copy.

A mean of a larger window is a sum of its rows' sums, which neighbours share: two passes, and no element is read more
often than a window is wide and high. Larger windows that lie side by side are reductions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, registering
from jitney_lowering.aten.tensor import ZERO, Shape, Tensor
from jitney_lowering.index import Index, index, max_, min_
from jitney_lowering.ir.scalar import Scalar, is_nan, where
from jitney_lowering.ir.values import Value, apply, constant, position
from jitney_lowering.rules.promotion import opmath

aten = torch.ops.aten
POOLS: dict[Any, Rule] = {}
MOST = 25  # elements of a window
WRITTEN_OUT = 64  # terms of a sum


pool = registering(POOLS)


def pair(call: Call, given: Any, otherwise: tuple[int, int] | None = None) -> tuple[int, int]:
    """Numbers for height and width."""
    numbers = list(given) if isinstance(given, (list, tuple)) else [given]
    if not numbers and otherwise is not None:
        return otherwise
    call.refuse_unless(all(isinstance(n, int) for n in numbers), "a window of symbolic size")
    return (numbers[0], numbers[-1])


def is_small(kernel: Sequence[int]) -> bool:
    """Are a window's elements written out?"""
    return kernel[0] * kernel[1] <= MOST


def _windows(call: Call, x: Tensor, ceil_mode: bool) -> None:
    call.refuse_unless(x.dtype.is_floating_point, "a pool of whole numbers")
    call.refuse_unless(not ceil_mode or call.builder.policy.chooses, "windows that reach over the edge")


@pool(aten.avg_pool2d.default)
def avg_pool2d(call: Call) -> Tensor:
    """The mean of a window, added up in float32 at least, row by row or by the rows' sums."""
    x, kernel, stride, padding, ceil_mode, counts_padding, divisor = call.args
    kernel = pair(call, kernel)
    stride, padding = pair(call, stride, kernel), pair(call, padding)
    _windows(call, x, ceil_mode)
    ragged = ceil_mode or not (counts_padding or padding == (0, 0))
    call.refuse_unless(not ragged or divisor is not None or call.builder.policy.chooses, "a mean without the padding")
    height, width = x.size[-2:]
    reach = _reach(call, (height, width), kernel, stride, padding, (1, 1)) if ceil_mode else None
    side_by_side = tuple(kernel) == tuple(stride) and padding == (0, 0) and not ceil_mode
    if side_by_side and not is_small(kernel):
        return _mean_of_tiles(call, x, kernel, divisor)
    x = _padded(call, x, padding, 0.0, reach)
    compute = opmath(x.dtype)

    counted = elements_counted((height, width), kernel, stride, padding, counts_padding)

    def amount(at: Shape) -> Scalar | int:
        if divisor is not None or not ragged:
            return divisor if divisor is not None else kernel[0] * kernel[1]
        return Scalar(position(counted(at))).to(compute)

    def written_out(at: Shape) -> Scalar:
        total = Scalar(constant(0, compute))
        for i, j in itertools.product(range(kernel[0]), range(kernel[1])):
            total = total + Scalar(x.load(_place(at, stride, (1, 1), i, j))).to(compute)
        return total

    sums = None if is_small(kernel) else _sums(call, x, kernel, stride)

    def element(at: Shape) -> Value:
        total = written_out(at) if sums is None else Scalar(sums.load(at))
        return (total / amount(at)).to(call.dtype).value

    return call.result(element)


def _mean_of_tiles(call: Call, x: Tensor, kernel: Sequence[int], divisor: int | None) -> Tensor:
    """Windows that lie side by side: no element is in two, so none is stored for the windows' sake."""
    compute = opmath(x.dtype)
    size = (*call.size, index(kernel[0]), index(kernel[1]))

    def inside(at: Shape) -> Value:
        *outer, row, column, i, j = at
        return Scalar(x.load((*outer, row * kernel[0] + i, column * kernel[1] + j))).to(compute).value

    sums = call.builder.reduce("sum", Tensor(size, compute, x.device, inside), [len(size) - 2, len(size) - 1])
    amount = kernel[0] * kernel[1] if divisor is None else divisor
    return call.result(lambda at: (Scalar(sums.load(at)) / amount).to(call.dtype).value)


def _sums(call: Call, x: Tensor, kernel: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Of each window of a padded tensor, by way of the sums of its rows."""
    *outer, height, _ = x.size
    compute, (rows, columns) = opmath(x.dtype), call.size[-2:]

    def of_row(at: Shape, j: Index) -> Value:
        *place, column = at
        return Scalar(x.load((*place, column * stride[1] + j))).to(compute).value

    by_row = call.builder.spread(_sum(call, (*outer, height, columns), kernel[1], of_row))

    def of_window(at: Shape, i: Index) -> Value:
        *place, row, column = at
        return by_row.load((*place, row * stride[0] + i, column))

    return _sum(call, (*outer, rows, columns), kernel[0], of_window)


def _sum(call: Call, size: Shape, terms: int, term: Callable[[Shape, Index], Value]) -> Tensor:
    """For each element the sum of so many terms: written out, or a loop."""
    device, compute = call.args[0].device, opmath(call.dtype)
    if terms > WRITTEN_OUT:
        every = Tensor((*size, index(terms)), compute, device, lambda at: term(at[:-1], at[-1]))
        return call.builder.reduce("sum", every, [len(size)])

    def element(at: Shape) -> Value:
        total = Scalar(constant(0, compute))
        for number in range(terms):
            total = total + Scalar(term(at, index(number)))
        return total.value

    return Tensor(size, compute, device, element)


def elements_counted(
    size: Sequence[Index], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], counts_padding: bool
) -> Callable[[Shape], Index]:
    """From a window to what a mean divides by: how many elements are there, or also those of the padding."""

    def counted(at: Shape) -> Index:
        total = index(1)
        for i, k, s, p, n in zip(at[-2:], kernel, stride, padding, size, strict=True):
            start = i * s - p
            if counts_padding:
                total = total * (min_(start + k, n + p) - start)
            else:
                total = total * (min_(start + k, n) - max_(start, ZERO))
        return total

    return counted


def _reach(
    call: Call,
    size: tuple[Index, Index],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[Index, Index]:
    """How far windows go beyond the end of rows and columns: the padding, or further with ``ceil_mode``."""
    made = call.val[0] if isinstance(call.val, (list, tuple)) else call.val
    results = call.builder.sizes.shape(made.shape)[-2:]
    ends = [
        (count - 1) * s + (k - 1) * d + 1 - p - n
        for count, s, k, d, p, n in zip(results, stride, kernel, dilation, padding, size, strict=True)
    ]
    rows, columns = (max_(end, index(p)) for end, p in zip(ends, padding, strict=True))
    return rows, columns


@pool(aten.max_pool2d_with_indices.default)
def max_pool2d(call: Call) -> list[Tensor]:
    """The greatest of a window, and its place in the plane: the first, or the last nan."""
    x, kernel, stride, padding, dilation, ceil_mode = call.args
    kernel = pair(call, kernel)
    stride, padding, dilation = pair(call, stride, kernel), pair(call, padding), pair(call, dilation)
    _windows(call, x, ceil_mode)
    call.refuse_unless(is_small(kernel), f"a window of more than {MOST} elements")
    width = x.size[-1]
    reach = _reach(call, x.size[-2:], kernel, stride, padding, dilation) if ceil_mode else None
    padded = _padded(call, x, padding, -float("inf"), reach)
    spots = list(itertools.product(range(kernel[0]), range(kernel[1])))

    def values(at: Shape) -> list[Scalar]:
        return [Scalar(padded.load(_place(at, stride, dilation, i, j))) for i, j in spots]

    def greatest(at: Shape) -> Value:
        best = values(at)[0]
        for value in values(at)[1:]:
            best = Scalar(apply("maximum", value.value, best.value))  # of equal zeros the first
        return best.value

    def place(at: Shape) -> Value:
        best = Scalar(constant(-float("inf"), x.dtype))
        found = Scalar(position(_first(at[-2], 0) * width + _first(at[-1], 1)))
        for (i, j), value in zip(spots, values(at), strict=True):
            better = (value > best) | is_nan(value)
            y, z = _place(at, stride, dilation, i, j)[-2:]
            here = (y - padding[0]) * width + (z - padding[1])
            found = where(better, Scalar(position(here)), found)
            best = where(better, value, best)
        return found.value

    def _first(i: Index, which: int) -> Index:
        """The window's first element that is not padding."""
        start = i * stride[which] - padding[which]
        skipped = -(-padding[which] // dilation[which]) if padding[which] else 0
        return start if not skipped else _after_padding(start, dilation[which], skipped)

    sizes, strides = call.builder.sizes.shape, [v.stride() for v in call.val]
    return [
        Tensor(sizes(v.shape), v.dtype, v.device, element, wanted=sizes(stride))
        for v, element, stride in zip(call.val, (greatest, place), strides, strict=True)
    ]


def _after_padding(start: Index, step: int, most: int) -> Index:
    """``start`` moved on in steps until it is not negative; ``most`` steps are enough."""
    steps = max_(-start + (step - 1), index(0)) // step
    return start + steps * step


def _place(at: Shape, stride: Sequence[int], dilation: Sequence[int], i: int, j: int) -> Shape:
    """The element of the window at row i and column j."""
    return (*at[:-2], at[-2] * stride[0] + i * dilation[0], at[-1] * stride[1] + j * dilation[1])


def _padded(
    call: Call, x: Tensor, padding: tuple[int, int], fill: float, reach: tuple[Index, Index] | None = None
) -> Tensor:
    """The tensor with an edge, computed once, for windows overlap; ``reach``: after rows and columns, if other."""
    after = (index(padding[0]), index(padding[1])) if reach is None else reach
    if padding == (0, 0) and all(n == 0 for n in after):
        return call.builder.spread(x)
    edges = [(ZERO, ZERO)] * (len(x.size) - 2) + [(index(n), m) for n, m in zip(padding, after, strict=True)]
    return call.builder.padded(x, edges, constant(fill, x.dtype))
