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
LAST, OTHERS = 256, 16
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
        Refused: a size is not known.
    """
    if not dims:
        return w.op("Identity", x)
    sizes = [number_of(size) for size in shape]
    if any(type(sizes[dim]) is not int for dim in dims):
        raise Refused("a sum over a symbolic size")
    for dim in dims:
        x, sizes[dim] = _shortened(w, x, sizes, dim, LAST if dim == len(sizes) - 1 else OTHERS)
    limit = LAST if dims[-1] == len(sizes) - 1 else OTHERS
    neighbours = list(dims) == list(range(dims[0], dims[-1] + 1))
    if neighbours and math.prod(sizes[dim] for dim in dims) <= limit:
        rounds = [list(dims)]
    else:
        rounds = [[dim] for dim in reversed(dims)]
    for axes in rounds:
        x = w.op("ReduceSum", x, w.constant(axes, torch.int64), keepdims=1)
    total = w.op("Add", x, one(w, x, 0.0))  # a sum of nothing but -0.0 is 0.0 in eager
    return total if keep else w.reshaped(total, [size for dim, size in enumerate(shape) if dim not in dims])


def _shortened(w: Writer, x: Value, sizes: Sequence[Any], dim: int, limit: int) -> tuple[Value, int]:
    """Sums of at most so many neighbours in a dimension, until it is no longer than twice that; and its size then."""
    size = sizes[dim]
    while size > 2 * limit:
        part = next((n for n in range(limit, limit // 2, -1) if size % n == 0), limit)
        missing = -size % part
        if missing:
            after = [0] * len(sizes)
            after[dim] = missing
            x = w.op("Pad", x, w.constant([*[0] * len(sizes), *after], torch.int64), one(w, x, 0.0), mode="constant")
        size = (size + missing) // part
        x = w.reshaped(x, [*sizes[:dim], size, part, *sizes[dim + 1 :]])
        x = w.op("ReduceSum", x, w.constant([dim + 1], torch.int64), keepdims=0)
    return x, size


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
    dims = [] if call.arguments.get("dim") == [] else dims_of(call)  # unlike elsewhere, none is not all
    return finished(w, call, reduced(w, kind, x, dims, call.arguments.get("keepdim", False)))


rule(aten.any.default, aten.any.dim, aten.any.dims)(functools.partial(_truth, "ReduceMax"))
rule(aten.all.default, aten.all.dim, aten.all.dims)(functools.partial(_truth, "ReduceMin"))


@rule(aten.logsumexp.default)
def logsumexp(w: Writer, call: Call) -> Value:
    """Less the largest first, unless that is infinite."""
    x, dims = wide(w, call, "self", call.out.dtype), dims_of(call)
    largest = extreme(w, "ReduceMax", x, dims, True)
    infinite = w.op("IsInf", largest, dtype=torch.bool)
    shift = w.op("Where", infinite, one(w, x, 0.0), largest, on=1)
    total = summed(w, w.op("Exp", w.op("Sub", x, shift)), call.fake("self").shape, dims, True)
    made = w.op("Add", w.op("Log", total), shift)
    return finished(w, call, made if call["keepdim"] else w.reshaped(made, call.out.shape))


@rule(aten.linalg_vector_norm.default)
def vector_norm(w: Writer, call: Call) -> Value:
    """The Euclidean one."""
    if call["ord"] != 2 or call["dtype"] is not None:
        raise Refused("another norm")
    x = wide(w, call, "self")
    total = summed(w, w.op("Mul", x, x), call.fake("self").shape, dims_of(call), call["keepdim"])
    return finished(w, call, w.op("Sqrt", total))


@rule(aten.cumsum.default)
def cumsum(w: Writer, call: Call) -> Value:
    """Of integers, which wrap; eager adds floats more precisely."""
    if call.out.dtype is not torch.int64 or not call.out.dim():
        raise Refused("of floats, or of a number")
    x = w.cast(w.value(call["self"]), torch.int64)
    return w.op("CumSum", x, w.constant(call["dim"] % call.out.dim(), torch.int64))
