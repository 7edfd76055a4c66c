"""Functions of one tensor, element by element."""

from __future__ import annotations

import functools
import math

import torch

from jitney_onnxruntime.dtypes import FLOATS, FULL, INTEGERS
from jitney_onnxruntime.rules.operands import finished, one, wide
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer

aten = torch.ops.aten

# Left out are those that ONNX Runtime computes less precisely: asin, acos, atan.
FUNCTIONS = {
    aten.exp.default: "Exp",
    aten.log.default: "Log",
    aten.sqrt.default: "Sqrt",
    aten.reciprocal.default: "Reciprocal",
    aten.sin.default: "Sin",
    aten.cos.default: "Cos",
    aten.tan.default: "Tan",
    aten.sinh.default: "Sinh",
    aten.cosh.default: "Cosh",
    aten.asinh.default: "Asinh",
    aten.acosh.default: "Acosh",
    aten.atanh.default: "Atanh",
    aten.tanh.default: "Tanh",
    aten.erf.default: "Erf",
}
ROUNDINGS = {aten.floor.default: "Floor", aten.ceil.default: "Ceil", aten.round.default: "Round"}
SAME_DTYPE = {aten.neg.default: "Neg", aten.abs.default: "Abs", aten.relu.default: "Relu"}


def _function(kind: str, w: Writer, call: Call) -> Value:
    """Of integers: their floats'."""
    return finished(w, call, w.op(kind, wide(w, call, "self", call.out.dtype)))


def _rounding(kind: str, w: Writer, call: Call) -> Value:
    if call.out.dtype not in FLOATS:
        return _unrounded(w, call)
    return finished(w, call, w.op(kind, wide(w, call, "self")))


def _unrounded(w: Writer, call: Call) -> Value:
    if call.out.dtype is torch.bool:
        raise Refused("a rounding of booleans")
    return w.op("Identity", w.value(call["self"]))


def _same_dtype(kind: str, w: Writer, call: Call) -> Value:
    return finished(w, call, w.op(kind, wide(w, call, "self")))


for table, write in ((FUNCTIONS, _function), (ROUNDINGS, _rounding), (SAME_DTYPE, _same_dtype)):
    for operator, kind in table.items():
        rule(operator)(functools.partial(write, kind))


@rule(aten.rsqrt.default)
def rsqrt(w: Writer, call: Call) -> Value:
    """1 / sqrt(x), as eager."""
    return finished(w, call, w.op("Reciprocal", w.op("Sqrt", wide(w, call, "self", call.out.dtype))))


def one_plus_exp(w: Writer, x: Value) -> Value:
    """1 + exp(-x)."""
    return w.op("Add", w.op("Exp", w.op("Neg", x)), one(w, x))


@rule(aten.sigmoid.default)
def sigmoid(w: Writer, call: Call) -> Value:
    """1 / (1 + exp(-x)); ONNX Runtime's own is off below -18."""
    return finished(w, call, w.op("Reciprocal", one_plus_exp(w, wide(w, call, "self", call.out.dtype))))


@rule(aten.silu.default)
def silu(w: Writer, call: Call) -> Value:
    """x / (1 + exp(-x))."""
    x = wide(w, call, "self")
    return finished(w, call, w.op("Div", x, one_plus_exp(w, x)))


@rule(aten.gelu.default)
def gelu(w: Writer, call: Call) -> Value:
    """Both approximations."""
    return finished(w, call, w.op("Gelu", wide(w, call, "self"), approximate=call["approximate"]))


@rule(aten.sign.default)
def sign(w: Writer, call: Call) -> Value:
    """(0 < x) - (x < 0): of NaN it is 0."""
    x = wide(w, call, "self")
    if x.dtype in INTEGERS:
        return w.op("Sign", x)
    zero = one(w, x, 0.0)
    above = w.cast(w.op("Less", zero, x, dtype=torch.bool), x.dtype)
    return finished(w, call, w.op("Sub", above, w.cast(w.op("Less", x, zero, dtype=torch.bool), x.dtype)))


@rule(aten.isnan.default)
def isnan(w: Writer, call: Call) -> Value:
    """Of floats."""
    return w.op("IsNaN", wide(w, call, "self"), dtype=torch.bool)


@rule(aten.isinf.default)
def isinf(w: Writer, call: Call) -> Value:
    """Of floats."""
    return w.op("IsInf", wide(w, call, "self"), dtype=torch.bool)


@rule(aten.logical_not.default)
def logical_not(w: Writer, call: Call) -> Value:
    """Of any dtype."""
    return finished(w, call, w.op("Not", w.cast(w.value(call["self"]), torch.bool)))


@rule(aten.bitwise_not.default)
def bitwise_not(w: Writer, call: Call) -> Value:
    """Of integers; of booleans it is the logical one."""
    x = w.value(call["self"])
    return w.op("Not" if x.dtype is torch.bool else "BitwiseNot", x)


@rule(aten.leaky_relu.default)
def leaky_relu(w: Writer, call: Call) -> Value:
    """x where it is above 0, else x * slope."""
    x = wide(w, call, "self")
    if x.dtype in INTEGERS:
        raise Refused("of integers")
    other = w.op("Mul", x, w.number(call["negative_slope"], x.dtype))
    above = w.op("Greater", x, one(w, x, 0.0), dtype=torch.bool)
    return finished(w, call, w.op("Where", above, x, other, on=1))


@rule(aten.trunc.default)
def trunc(w: Writer, call: Call) -> Value:
    """Down above 0, else up: so that -0.0 keeps its sign."""
    if call.out.dtype not in FLOATS:
        return _unrounded(w, call)
    x = wide(w, call, "self")
    above = w.op("Greater", x, one(w, x, 0.0), dtype=torch.bool)
    return finished(w, call, w.op("Where", above, w.op("Floor", x), w.op("Ceil", x), on=1))


@rule(aten.nan_to_num.default)
def nan_to_num(w: Writer, call: Call) -> Value:
    """Numbers for NaN and infinities."""
    dtype = call.out.dtype
    if dtype not in FULL:
        raise Refused("not of float32 or float64")
    x, limits = w.value(call["self"]), torch.finfo(dtype)
    odd = w.op("IsNaN", x, dtype=torch.bool)
    made = w.op("Where", odd, one(w, x, (call["nan"] or 0.0) + 0.0), x, on=1)
    for given, infinite, else_ in (("posinf", math.inf, limits.max), ("neginf", -math.inf, limits.min)):
        number = w.number(else_ if call[given] is None else call[given] + 0.0, dtype)
        made = w.op("Where", w.op("Equal", x, one(w, x, infinite), dtype=torch.bool), number, made, on=1)
    return made


def _sixth(w: Writer, x: Value) -> Value:
    """min(max(x + 3, 0), 6)."""
    return w.op("Min", w.op("Max", w.op("Add", x, one(w, x, 3.0)), one(w, x, 0.0)), one(w, x, 6.0))


@rule(aten.hardsigmoid.default)
def hardsigmoid(w: Writer, call: Call) -> Value:
    """min(max(x + 3, 0), 6) / 6."""
    x = wide(w, call, "self")
    return finished(w, call, w.op("Div", _sixth(w, x), one(w, x, 6.0)))


@rule(aten.hardswish.default)
def hardswish(w: Writer, call: Call) -> Value:
    """x * min(max(x + 3, 0), 6) / 6."""
    x = wide(w, call, "self")
    return finished(w, call, w.op("Div", w.op("Mul", x, _sixth(w, x)), one(w, x, 6.0)))


@rule(aten.clamp.default, aten.hardtanh.default)
def clamp(w: Writer, call: Call) -> Value:
    """Bounds that are numbers; NaN stays."""
    low, high = ("min", "max") if "min" in call.arguments else ("min_val", "max_val")
    x = wide(w, call, "self", call.out.dtype)
    for kind, bound in (("Max", call[low]), ("Min", call[high])):
        if bound is not None:
            x = w.op(kind, x, w.number(bound, x.dtype, call.out.dtype))
    return finished(w, call, x)


@rule(aten.clamp_min.default)
def clamp_min(w: Writer, call: Call) -> Value:
    """A lower bound."""
    x = wide(w, call, "self", call.out.dtype)
    return finished(w, call, w.op("Max", x, w.number(call["min"], x.dtype, call.out.dtype)))
