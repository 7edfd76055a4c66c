"""Sums, extremes and what is made of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from jitney_onnxruntime.dtypes import FLOATS
from jitney_onnxruntime.kernels import EXACT_SUMS
from jitney_onnxruntime.rules.operands import finished, one, wide
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer, number_of

aten = torch.ops.aten
# ONNX Runtime adds one number after the other (over the last dimension, one vector after the other), eager in a tree.
# Longer sums are made of sums of sums, of at most this many terms.
LAST, OTHERS = 512, 64
EXACT = 2**20  # numbers of 32 bits, added in float64


def dims_of(call: Call, name: str = "dim") -> list[int]:
    """The dimensions to reduce, ascending; all of them if none is given."""
    dims, given = call.fake("self").dim(), call.arguments.get(name)
    if given is None or given == []:
        return list(range(dims))
    listed = [given] if isinstance(given, int) else given
    return sorted(dim % dims if dims else 0 for dim in listed) if dims else []


def reduced(w: Writer, kind: str, x: Value, dims: Sequence[int], keep: bool) -> Value:
    """A reduction of these dimensions."""
    if not dims:
        return w.op("Identity", x)
    axes = w.constant(list(dims), torch.int64)
    return w.op(kind, x, axes, keepdims=int(keep))


def summed(w: Writer, x: Value, shape: Sequence[Any], dims: Sequence[int], keep: bool) -> Value:
    """A sum of floats that is as precise as eager's.

    Args:
        x: what is summed.
        shape: its sizes.
        dims: the dimensions to sum over.
        keep: they stay, with a size of 1.

    Raises:
        Refused: a size is not known, or has no divisors to part it by.
    """
    if not dims:
        return w.op("Identity", x)
    lengths = [number_of(shape[dim]) for dim in dims]
    if any(type(n) is not int for n in lengths):
        raise Refused("a sum over a symbolic size")
    sizes: list[Any] = []
    rounds: list[list[int]] = []
    for dim, size in enumerate(shape):
        at = len(sizes)
        parts = _parts(number_of(size), LAST if dim == len(shape) - 1 else OTHERS) if dim in dims else [size]
        sizes += parts
        for number, place in enumerate(reversed(range(at, len(sizes)))) if dim in dims else ():
            rounds += [[] for _ in range(number + 1 - len(rounds))]
            rounds[number].append(place)
    limit = OTHERS if dims[-1] != len(shape) - 1 else LAST
    if len(rounds) == 1 and math.prod(lengths) <= limit:  # all at once
        return _of_zeros(w, w.op("ReduceSum", x, w.constant(list(dims), torch.int64), keepdims=int(keep)))
    if len(sizes) != len(shape):
        x = w.reshaped(x, sizes)
    for place in [place for places in rounds for place in sorted(places, reverse=True)]:
        x = w.op("ReduceSum", x, w.constant([place], torch.int64), keepdims=1)
    kept = [1 if dim in dims else n for dim, n in enumerate(shape) if keep or dim not in dims]
    return w.reshaped(_of_zeros(w, x), kept)


def _of_zeros(w: Writer, total: Value) -> Value:
    """A sum of nothing but -0.0 is 0.0 in eager."""
    return w.op("Add", total, one(w, total, 0.0))


def _parts(size: int, limit: int) -> list[int]:
    """Factors of a size, none above the limit but the last resort's refusal."""
    found = []
    while size > limit:
        part = next((n for n in range(limit, 7, -1) if size % n == 0), 0)
        if not part:
            raise Refused(f"a sum over {size} numbers, which has no divisors to part it by")
        found.append(part)
        size //= part
    return [size, *found]


def _sum(w: Writer, call: Call) -> Value:
    dims, keep = dims_of(call), call.arguments.get("keepdim", False)
    shape = call.fake("self").shape
    if call.out.dtype in FLOATS:
        x = wide(w, call, "self", call.out.dtype)
        return finished(w, call, summed(w, x, shape, dims, keep))
    count = [number_of(shape[dim]) for dim in dims]
    if call.out.dtype is not torch.int64 or call.fake("self").dtype not in EXACT_SUMS:
        raise Refused("a sum of integers that may be beyond float64's")
    if any(type(n) is not int for n in count) or math.prod(count) > EXACT:
        raise Refused("a sum of so many integers")
    x = w.cast(w.cast(w.value(call["self"]), torch.int64), torch.float64)
    total = w.op("ReduceSum", x, w.constant(dims, torch.int64), keepdims=int(keep)) if dims else x
    return w.cast(total, torch.int64)


rule(aten.sum.default, aten.sum.dim_IntList)(_sum)


@rule(aten.mean.default, aten.mean.dim)
def mean(w: Writer, call: Call) -> Value:
    """The sum, divided."""
    dims, shape = dims_of(call), call.fake("self").shape
    x = wide(w, call, "self", call.out.dtype)
    total = summed(w, x, shape, dims, call.arguments.get("keepdim", False))
    count = math.prod(number_of(shape[dim]) for dim in dims)
    return finished(w, call, w.op("Div", total, one(w, total, float(count))))


def centred(w: Writer, x: Value, shape: Sequence[Any], dims: Sequence[int]) -> tuple[Value, Value, int]:
    """The mean with its dimensions kept, the tensor less its mean, and of how many numbers it is."""
    total = summed(w, x, shape, dims, True)
    count = math.prod(number_of(shape[dim]) for dim in dims)
    middle = w.op("Div", total, one(w, total, float(count)))
    return middle, w.op("Sub", x, middle), count


@rule(aten.var.correction)
def var(w: Writer, call: Call) -> Value:
    """In two passes."""
    dims, shape = dims_of(call), call.fake("self").shape
    x = wide(w, call, "self")
    _, left, count = centred(w, x, shape, dims)
    correction = 1 if call["correction"] is None else call["correction"]
    if not isinstance(correction, (int, float)) or count <= correction:
        raise Refused("of no more numbers than the correction")
    total = summed(w, w.op("Mul", left, left), shape, dims, call["keepdim"])
    return finished(w, call, w.op("Div", total, one(w, total, float(count - correction))))


def extreme(w: Writer, kind: str, x: Value, dims: Sequence[int], keep: bool) -> Value:
    """The largest or smallest number; NaN if there is one, which ONNX Runtime loses."""
    made = reduced(w, kind, x, dims, keep)
    if x.dtype not in FLOATS or not dims:
        return made
    odd = reduced(w, "ReduceMax", w.op("IsNaN", x, dtype=torch.bool), dims, keep)
    return w.op("Where", odd, one(w, made, math.nan), made, on=1)


def _extreme(kind: str, w: Writer, call: Call) -> Value:
    return finished(
        w, call, extreme(w, kind, wide(w, call, "self"), dims_of(call), call.arguments.get("keepdim", False))
    )


rule(aten.amax.default, aten.max.default)(functools.partial(_extreme, "ReduceMax"))
rule(aten.amin.default, aten.min.default)(functools.partial(_extreme, "ReduceMin"))


def _place(kind: str, w: Writer, x: Value, dim: int, keep: bool) -> Value:
    """Where the first extreme is; the first NaN, if there is one."""
    found = w.op(kind, x, dtype=torch.int64, axis=dim, keepdims=int(keep))
    if x.dtype not in FLOATS:
        return found
    odd = w.op("IsNaN", x, dtype=torch.bool)
    first = w.op("ArgMax", w.cast(odd, torch.uint8), dtype=torch.int64, axis=dim, keepdims=int(keep))
    return w.op("Where", reduced(w, "ReduceMax", odd, [dim], keep), first, found, on=1)


def _argument(kind: str, w: Writer, call: Call) -> Value:
    x, source = wide(w, call, "self"), call.fake("self")
    if not source.dim():
        raise Refused("of a number")
    if call["dim"] is None:
        if call["keepdim"]:
            raise Refused("of all dimensions, kept")
        return _place(kind, w, w.reshaped(x, [math.prod(source.shape)]), 0, False)
    return _place(kind, w, x, call["dim"] % source.dim(), call["keepdim"])


rule(aten.argmax.default)(functools.partial(_argument, "ArgMax"))
rule(aten.argmin.default)(functools.partial(_argument, "ArgMin"))


def _both(side: str, w: Writer, call: Call) -> tuple[Value, ...]:
    x, source = wide(w, call, "self"), call.fake("self")
    if not source.dim():
        raise Refused("of a number")
    dim, keep = call["dim"] % source.dim(), call["keepdim"]
    values = extreme(w, f"Reduce{side}", x, [dim], keep)
    return w.cast(values, source.dtype), _place(f"Arg{side}", w, x, dim, keep)


rule(aten.max.dim)(functools.partial(_both, "Max"))
rule(aten.min.dim)(functools.partial(_both, "Min"))


def _truth(kind: str, w: Writer, call: Call) -> Value:
    x = w.cast(w.value(call["self"]), torch.bool)
    return finished(w, call, reduced(w, kind, x, dims_of(call), call.arguments.get("keepdim", False)))


rule(aten.any.default, aten.any.dim, aten.any.dims)(functools.partial(_truth, "ReduceMax"))
rule(aten.all.default, aten.all.dim, aten.all.dims)(functools.partial(_truth, "ReduceMin"))


@rule(aten.cumsum.default)
def cumsum(w: Writer, call: Call) -> Value:
    """Of integers, which wrap; eager adds floats more precisely."""
    if call.out.dtype is not torch.int64 or not call.out.dim():
        raise Refused("of floats, or of a number")
    x = w.cast(w.value(call["self"]), torch.int64)
    return w.op("CumSum", x, w.constant(call["dim"] % call.out.dim(), torch.int64))
