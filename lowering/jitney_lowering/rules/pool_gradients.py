"""Gradients of pools, and means over a part of the plane for each result, where machines choose rather than scatter.

An element's gradient is a sum over the windows that it is in, few of them. Nothing is added up by several threads.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, registering
from jitney_lowering.aten.tensor import Shape, Tensor
from jitney_lowering.index import Index, index
from jitney_lowering.ir.scalar import Scalar, where
from jitney_lowering.ir.values import Value, apply, constant, masked, position
from jitney_lowering.rules.pools import MOST, elements_counted, is_small, pair
from jitney_lowering.rules.promotion import opmath

aten = torch.ops.aten
POOL_GRADIENTS: dict[Any, Rule] = {}
Place = tuple[Index, list[Value]]  # along one dimension, and when it is there


gradient = registering(POOL_GRADIENTS)


@gradient(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(call: Call) -> Tensor:
    """The gradients of the windows, each through the number of its elements."""
    grad, x, kernel, stride, padding, _, counts_padding, divisor = call.args
    kernel = pair(call, kernel)
    stride, padding = pair(call, stride, kernel), pair(call, padding)
    grad, compute = _taken(call, grad, _overlaps(kernel, stride)), opmath(call.dtype)
    count = elements_counted(x.size[-2:], kernel, stride, padding, counts_padding)

    def one(at: Shape, here: Shape) -> Scalar:
        value = Scalar(grad.load(here)).to(compute)
        return value / (divisor if divisor is not None else Scalar(position(count(here))).to(compute))

    return _summed(call, _windows_of(grad, kernel, stride, padding), one)


@gradient(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_backward(call: Call) -> Tensor:
    """The gradients of the windows whose greatest element it was."""
    grad, x, kernel, stride, padding, dilation, _, places = call.args
    kernel = pair(call, kernel)
    stride, padding = pair(call, stride, kernel), pair(call, padding)
    call.refuse_unless(pair(call, dilation) == (1, 1), "gradients of windows with holes")
    grad, compute = _taken(call, grad, _overlaps(kernel, stride)), opmath(call.dtype)
    places, width = call.builder.spread(places), x.size[-1]

    def one(at: Shape, here: Shape) -> Scalar:
        mine = apply("eq", places.load(here), position(at[-2] * width + at[-1]))
        return where(Scalar(mine), Scalar(grad.load(here)).to(compute), 0.0)

    return _summed(call, _windows_of(grad, kernel, stride, padding), one)


@gradient(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(call: Call) -> Tensor:
    """Means of parts of the plane of about equal sizes."""
    x, _ = call.args
    old, new = _constants(call, x.size[-2:]), _constants(call, call.size[-2:])
    longest = [max(_end(i, m, n) - i * n // m for i in range(m)) for n, m in zip(old, new, strict=True)]
    x, compute = _taken(call, x, longest), opmath(call.dtype)

    def places(d: int, i: Index) -> list[Place]:
        n, m = old[d], new[d]
        if n % m == 0:
            return [(i * (n // m) + k, []) for k in range(n // m)]
        start, end = i * n // m, _end(i, m, n)
        return [(start + k, [_less(start + k, end)]) for k in range(longest[d])]

    def mean(at: Shape) -> Value:
        total = _total(at, places, lambda here: Scalar(x.load(here)).to(compute), compute)
        for i, n, m in zip(at[-2:], old, new, strict=True):
            total = total / Scalar(position(_end(i, m, n) - i * n // m)).to(compute)
        return total.to(call.dtype).value

    return call.result(mean)


@gradient(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(call: Call) -> Tensor:
    """The gradients of the parts that an element is in, each through the number of its elements."""
    grad, x = call.args
    old, new = _constants(call, x.size[-2:]), _constants(call, grad.size[-2:])
    call.refuse_unless(all(m <= n for n, m in zip(old, new, strict=True)), "parts that are smaller than an element")
    grad, compute = _taken(call, grad, (2, 2)), opmath(call.dtype)

    def places(d: int, i: Index) -> list[Place]:
        n, m = old[d], new[d]
        if n % m == 0:
            return [(i // (n // m), [])]
        first, end = i * m // n, _end(i, n, m)
        return [(first, []), (first + 1, [_less(first + 1, end)])]

    def one(at: Shape, here: Shape) -> Scalar:
        value = Scalar(grad.load(here)).to(compute)
        for i, n, m in zip(here[-2:], old, new, strict=True):
            value = value / Scalar(position(_end(i, m, n) - i * n // m)).to(compute)
        return value

    return _summed(call, places, one)


# --- parts that rules are made of -----------------------------------------------------------------------------------


def _taken(call: Call, x: Tensor, window: Sequence[int]) -> Tensor:
    """The tensor, before elements of it are read several times, unless this does not suit machine or window."""
    call.refuse_unless(call.builder.policy.chooses, "rather scattered")
    call.refuse_unless(x.dtype.is_floating_point, "a pool of whole numbers")
    call.refuse_unless(is_small(window), f"a sum of more than {MOST} elements")
    return call.builder.spread(x)


def _overlaps(kernel: Sequence[int], stride: Sequence[int]) -> list[int]:
    """In how many windows an element may be, along each dimension."""
    return [-(-k // s) for k, s in zip(kernel, stride, strict=True)]


def _constants(call: Call, size: Sequence[Index]) -> list[int]:
    numbers = [n.value for n in size]
    call.refuse_unless(None not in numbers and 0 not in numbers, "parts of symbolic sizes")
    return [n for n in numbers if n is not None]


def _windows_of(
    grad: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> Callable[[int, Index], list[Place]]:
    """Along each dimension the windows that a place is in, in ascending order."""

    def places(d: int, i: Index) -> list[Place]:
        k, s, last = kernel[d], stride[d], (i + padding[d]) // stride[d]
        found: list[Place] = []
        for back in range(_overlaps(kernel, stride)[d] - 1, -1, -1):
            window = last - back
            there = [_less(window, grad.size[d - 2]), apply("ge", position(window), position(index(0)))]
            if k % s:
                there.append(_less(i + padding[d] - window * s, index(k)))
            found.append((window, there))
        return found

    return places


def _summed(call: Call, places: Callable[[int, Index], list[Place]], one: Callable[[Shape, Shape], Scalar]) -> Tensor:
    compute = opmath(call.dtype)

    def element(at: Shape) -> Value:
        return _total(at, places, lambda here: one(at, here), compute).to(call.dtype).value

    return call.result(element)


def _total(
    at: Shape, places: Callable[[int, Index], list[Place]], one: Callable[[Shape], Scalar], compute: torch.dtype
) -> Scalar:
    """The sum over the places that are there, row by row; nothing is read elsewhere."""
    total = Scalar(constant(0, compute))
    for (y, first), (x, second) in itertools.product(places(0, at[-2]), places(1, at[-1])):
        value = one((*at[:-2], y, x))
        there = [*first, *second]
        if there:
            truth = functools.reduce(lambda a, b: apply("and", a, b), there)
            value = where(Scalar(truth), Scalar(masked(value.value, truth)), 0.0)
        total = total + value
    return total


def _less(a: Index, b: Index) -> Value:
    return apply("lt", position(a), position(b))


def _end(i: Any, parts: int, size: int) -> Any:
    """Where part ``i`` of so many of a dimension ends."""
    return ((i + 1) * size + (parts - 1)) // parts
