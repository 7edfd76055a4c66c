"""Windows of images as columns of a matrix, and columns added up to an image: index arithmetic, each other's gradient.

An element of the image is a sum over the windows that it is in, few of them. Nothing is added up by several threads.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, registering
from jitney_lowering.aten.tensor import ZERO, Shape, Tensor
from jitney_lowering.index import Index, index, max_, min_
from jitney_lowering.ir.scalar import Scalar, where
from jitney_lowering.ir.values import Value, apply, constant, masked, position
from jitney_lowering.rules.pools import pair
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.rules.views import reshaped, sliced

aten = torch.ops.aten
WINDOWS: dict[Any, Rule] = {}
Place = tuple[Index, Index, list[Value]]
MOST = 36  # windows that an element is in


window = registering(WINDOWS)


@dataclass(frozen=True)
class Windows:
    """Where windows of an image are; each field for rows and columns."""

    kernel: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    stride: tuple[int, int]

    def count(self, size: Sequence[Index]) -> tuple[Index, Index]:
        """How many there are in an image of so many rows and columns."""
        rows, columns = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, d, p, s in zip(size, self.kernel, self.dilation, self.padding, self.stride, strict=True)
        )
        return rows, columns

    @property
    def are_even(self) -> bool:
        """Are they one after the other, or is there one at each place?"""
        several = zip(self.kernel, self.stride, self.dilation, strict=True)
        return all(s == 1 or (k == s and d == 1) for k, s, d in several)

    def steps(self, axis: int) -> int:
        """How many windows an element may be in, along an axis."""
        k, d, s = self.kernel[axis], self.dilation[axis], self.stride[axis]
        return -(-k // s) if d == 1 else k

    def around(self, axis: int, i: Index) -> Iterator[Place]:
        """The windows that a place is in, along an axis: (which, the place's number there, if these hold).

        Windows before the first and after the last are among them, and some do not reach the place.
        """
        k, d, s = self.kernel[axis], self.dilation[axis], self.stride[axis]
        moved = i + self.padding[axis]
        if d == 1:  # the last that begins before it, and those before that
            for back in range(self.steps(axis) - 1, -1, -1):
                one = moved // s - back
                inner = moved - one * s
                yield one, min_(inner, index(k - 1)), [_less(inner, index(k))] if k % s else []
            return
        for number in range(k):
            start = moved - number * d
            one = start // s
            yield one, index(number), [apply("eq", position(one * s), position(start))] if s != 1 else []

    def beyond(self, axis: int, size: Index, count: Index) -> tuple[Index, Index]:
        """How many windows ``around`` gives before the first and after the last one, in an image of this size."""
        k, d, s, p = self.kernel[axis], self.dilation[axis], self.stride[axis], self.padding[axis]
        first = p // s - (self.steps(axis) - 1) if d == 1 else (p - (k - 1) * d) // s
        return index(max(-first, 0)), max_((size - 1 + p) // s - (count - 1), ZERO)


def _windows(call: Call, given: Sequence[Any]) -> Windows:
    """From the arguments, which come in this order."""
    kernel, dilation, padding, stride = (pair(call, g) for g in given)
    call.refuse_unless(min(*kernel, *dilation, *stride) > 0 <= min(padding), "windows of no size")
    return Windows(kernel, dilation, padding, stride)


@window(aten.im2col.default)
def im2col(call: Call) -> Tensor:
    """A column for each window: (..., channels * kernel, windows)."""
    x, *given = call.args
    windows = _windows(call, given)
    *lead, channels, height, width = x.size
    count = windows.count((height, width))
    edges = [(ZERO, ZERO)] * (len(x.size) - 2) + [(index(p), index(p)) for p in windows.padding]
    if windows.padding == (0, 0):
        source = call.builder.spread(x)
    else:
        source = call.builder.padded(x, edges, constant(0, x.dtype))

    def element(at: Shape) -> Value:
        *first, i, j, row, column = at
        (s, t), (d, e) = windows.stride, windows.dilation
        return source.load((*first, row * s + i * d, column * t + j * e))

    size = (*lead, channels, *map(index, windows.kernel), *count)
    return reshaped(Tensor(size, x.dtype, x.device, element), call.size)


@window(aten.col2im.default)
def col2im(call: Call) -> Tensor:
    """The sum of the windows: (..., channels, height, width); of halves in float32, as on GPUs."""
    x, _, *given = call.args
    windows = _windows(call, given)
    call.refuse_unless(x.dtype.is_floating_point, "windows of whole numbers")
    overlap = windows.steps(0) * windows.steps(1)
    call.refuse_unless(overlap <= MOST, f"more than {MOST} windows around an element")
    chooses = call.builder.policy.chooses
    call.refuse_unless(chooses or windows.are_even, "windows that overlap, or leave gaps, at a distance")
    source = x if overlap == 1 else call.builder.spread(x)
    *lead, channels, height, width = call.size
    counts = windows.count((height, width))
    (high, wide), compute = windows.kernel, opmath(x.dtype)
    apart = source.view(
        (*lead, channels, index(high), index(wide), *counts),
        lambda at: (*at[:-5], (at[-5] * high + at[-4]) * wide + at[-3], at[-2] * counts[1] + at[-1]),
    )
    before = [ZERO, ZERO]
    if not chooses:  # zeros where no windows are, instead of masks
        edges = [windows.beyond(axis, n, c) for axis, (n, c) in enumerate(zip(call.size[-2:], counts, strict=True))]
        before = [first for first, _ in edges]
        if any(n != 0 for edge in edges for n in edge):
            none = [(ZERO, ZERO)] * (len(apart.size) - 2)
            apart = call.builder.padded(apart, [*none, *edges], constant(0, x.dtype))

    def one(first: Shape, row: Place, column: Place) -> Scalar:
        (n, i, above), (m, j, beside) = row, column
        value = Scalar(apart.load((*first, i, j, n + before[0], m + before[1]))).to(compute)
        there = [*above, *beside]
        if chooses:
            there += [*_within(n, counts[0]), *_within(m, counts[1])]
        if not there:
            return value
        inside = functools.reduce(lambda a, b: apply("and", a, b), there)
        return where(Scalar(inside), Scalar(masked(value.value, inside)), 0.0)

    def element(at: Shape) -> Value:
        pairs = itertools.product(windows.around(0, at[-2]), windows.around(1, at[-1]))
        values = [one(at[:-2], row, column) for row, column in pairs]
        return functools.reduce(operator.add, values).to(call.dtype).value

    return call.result(element)


@window(aten.unfold_backward.default)
def unfold_backward(call: Call) -> Tensor:
    """The sum of the windows of a dimension; the place in a window is the last dimension.

    Elements are numbered by the last window that may have begun before them, and how far they are from its first.
    """
    x, _, dim, size, step = call.args
    call.refuse_unless(x.dtype.is_floating_point and bool(call.size), "windows of whole numbers, or of one element")
    call.refuse_unless(isinstance(size, int) and isinstance(step, int), "windows of a symbolic size")
    dim = axis(dim, len(call.size))
    overlap, compute = -(-size // step), opmath(x.dtype)
    call.refuse_unless(0 < overlap <= MOST, f"no window, or more than {MOST}, around an element")
    source, count = call.builder.spread(x), x.size[dim]
    if not call.builder.policy.chooses and overlap > 1:  # neighbours in memory are what vectors read
        call.builder.realise(source)

    def one(at: Shape, back: int) -> Scalar:
        number, inner = at[dim] - back, at[dim + 1] + back * step
        there = _within(number, count) if back else [_less(number, count)]
        there += [_less(inner, index(size))] if (back + 1) * step > size else []
        value = source.load((*at[:dim], number, *at[dim + 2 :], inner))
        inside = functools.reduce(lambda a, b: apply("and", a, b), there)
        return where(Scalar(inside), Scalar(masked(value, inside)).to(compute), 0.0)

    def element(at: Shape) -> Value:
        return functools.reduce(operator.add, [one(at, back) for back in range(overlap - 1, -1, -1)]).to(x.dtype).value

    rows = (call.size[dim] + step - 1) // step
    rest = call.size[dim + 1 :]
    cut = Tensor((*call.size[:dim], rows, index(step), *rest), x.dtype, x.device, element)
    if not call.builder.policy.chooses:
        call.builder.realise(cut)
    return sliced(reshaped(cut, (*call.size[:dim], rows * step, *rest)), dim, ZERO, call.size[dim])


def _within(i: Index, size: Index) -> list[Value]:
    return [apply("ge", position(i), position(ZERO)), _less(i, size)]


def _less(a: Index, b: Index) -> Value:
    return apply("lt", position(a), position(b))
