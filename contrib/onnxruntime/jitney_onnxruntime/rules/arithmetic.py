"""Arithmetic of two tensors, or of a tensor and a number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from jitney_onnxruntime.dtypes import FLOATS, INTEGERS, computing
from jitney_onnxruntime.rules.operands import finished, one, operands, wide
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer, number_of

aten = torch.ops.aten


def _arithmetic(kind: str, w: Writer, call: Call) -> Value:
    dtype = call.out.dtype
    if dtype is torch.bool or (kind == "Sub" and _has_booleans(call)):
        raise Refused("arithmetic of booleans")
    a, b = operands(w, call, "self", "other", common=dtype, whole="other" if kind == "Mul" else "")
    alpha = number_of(call.arguments.get("alpha", 1))
    if alpha != 1:
        b = w.op("Mul", b, w.number(_exact_factor(alpha, dtype), computing(dtype)))
    return finished(w, call, w.op(kind, a, b))


def _has_booleans(call: Call) -> bool:
    """Is one of the two a tensor of booleans? Eager subtracts none."""
    given = [call.given(name) for name in ("self", "other")]
    return any(isinstance(value, torch.Tensor) and value.dtype is torch.bool for value in given)


def _exact_factor(alpha: Any, dtype: torch.dtype) -> Any:
    """A factor with which products of floats are exact, as in eager's fused multiplication and addition."""
    if not isinstance(alpha, (int, float)):
        raise Refused("a symbolic factor")
    if dtype in FLOATS and (alpha == 0 or math.frexp(abs(alpha))[0] != 0.5):
        raise Refused("a factor by which products are rounded")
    return alpha


ADDING = {
    "Add": (aten.add.Tensor, aten.add.Scalar),
    "Sub": (aten.sub.Tensor, aten.sub.Scalar),
    "Mul": (aten.mul.Tensor, aten.mul.Scalar),
}
for _kind, _operators in ADDING.items():
    rule(*_operators)(functools.partial(_arithmetic, _kind))


@rule(aten.rsub.Scalar, aten.rsub.Tensor)
def rsub(w: Writer, call: Call) -> Value:
    """other - self."""
    if call["alpha"] != 1 or _has_booleans(call):
        raise Refused("with a factor, or of booleans")
    a, b = operands(w, call, "self", "other", common=call.out.dtype)
    return finished(w, call, w.op("Sub", b, a))


@rule(aten.div.Tensor, aten.div.Scalar)
def div(w: Writer, call: Call) -> Value:
    """True division; of integers it is that of their floats."""
    a, b = operands(w, call, "self", "other", common=call.out.dtype, whole="other")
    return finished(w, call, w.op("Div", a, b))


def _constant_divisor(call: Call) -> int:
    divisor = call["other"]
    if type(divisor) is not int or divisor in (0, -1):  # which a processor's division does not survive
        raise Refused("a divisor that is no constant, or 0 or -1")
    if call.out.dtype not in (torch.int32, torch.int64):
        raise Refused("not of int32 or int64")
    return divisor


def _quotient(w: Writer, call: Call, rounding: str) -> Value:
    divisor = _constant_divisor(call)
    x = wide(w, call, "self", call.out.dtype)
    by = w.number(divisor, x.dtype)
    quotient = w.op("Div", x, by)
    if rounding == "trunc":
        return quotient
    left = w.op("Sub", x, w.op("Mul", quotient, by))
    zero = w.constant(0, x.dtype)
    other_sign = (
        w.op("Less", left, zero, dtype=torch.bool) if divisor > 0 else w.op("Less", zero, left, dtype=torch.bool)
    )
    return w.op("Sub", quotient, w.cast(other_sign, x.dtype))


@rule(aten.floor_divide.default)
def floor_divide(w: Writer, call: Call) -> Value:
    """Of integers by a constant."""
    return _quotient(w, call, "floor")


@rule(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_rounded(w: Writer, call: Call) -> Value:
    """Of integers by a constant; without rounding, true division."""
    return div(w, call) if call["rounding_mode"] is None else _quotient(w, call, call["rounding_mode"])


@rule(aten.remainder.Scalar, aten.remainder.Tensor)
def remainder(w: Writer, call: Call) -> Value:
    """Of integers by a constant: the divisor's sign, as Python's."""
    divisor = _constant_divisor(call)
    x = wide(w, call, "self", call.out.dtype)
    return w.op("Mod", x, w.number(divisor, x.dtype))


@rule(aten.maximum.default)
def maximum(w: Writer, call: Call) -> Value:
    """NaN if one is."""
    return finished(w, call, w.op("Max", *operands(w, call, "self", "other")))


@rule(aten.minimum.default)
def minimum(w: Writer, call: Call) -> Value:
    """NaN if one is."""
    return finished(w, call, w.op("Min", *operands(w, call, "self", "other")))


# Exponents for which eager has a way of its own.
POWERS: dict[float, Callable[[Writer, Value], Value]] = {
    0.5: lambda w, x: w.op("Sqrt", x),
    -0.5: lambda w, x: w.op("Reciprocal", w.op("Sqrt", x)),
    1: lambda w, x: w.op("Identity", x),
    2: lambda w, x: w.op("Mul", x, x),
    3: lambda w, x: w.op("Mul", w.op("Mul", x, x), x),
    -1: lambda w, x: w.op("Reciprocal", x),
    -2: lambda w, x: w.op("Reciprocal", w.op("Mul", x, x)),
}


@rule(aten.pow.Tensor_Scalar)
def pow_number(w: Writer, call: Call) -> Value:
    """A constant exponent; of integers, a small one."""
    exponent = call["exponent"]
    if not isinstance(exponent, (int, float)) or isinstance(exponent, bool):
        raise Refused("an exponent that is no constant")
    x = wide(w, call, "self", call.out.dtype)
    if x.dtype in INTEGERS and exponent not in (1, 2, 3):
        raise Refused("such a power of integers")
    if exponent in POWERS:
        return finished(w, call, POWERS[exponent](w, x))
    return finished(w, call, w.op("Pow", x, w.number(exponent, x.dtype, call.out.dtype)))


@rule(aten.pow.Tensor_Tensor)
def pow_tensors(w: Writer, call: Call) -> Value:
    """Of floats."""
    if call.out.dtype not in FLOATS:
        raise Refused("of integers")
    return finished(w, call, w.op("Pow", *operands(w, call, "self", "exponent", common=call.out.dtype)))


@rule(aten.lerp.Scalar)
def lerp(w: Writer, call: Call) -> Value:
    """Eager's two formulas: from the nearer end."""
    weight = call["weight"]
    if not isinstance(weight, (int, float)) or call.out.dtype not in (torch.float32, torch.float64):
        raise Refused("not of float32 or float64 by a constant")
    start, end = operands(w, call, "self", "end")
    way = w.op("Sub", end, start)
    if abs(weight) < 0.5:
        return w.op("Add", start, w.op("Mul", way, one(w, way, weight)))
    return w.op("Sub", end, w.op("Mul", way, w.op("Sub", one(w, way), one(w, way, weight))))
