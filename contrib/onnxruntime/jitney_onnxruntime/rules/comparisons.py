"""Comparisons, logic, and choices between two tensors."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from jitney_onnxruntime.dtypes import FLOATS
from jitney_onnxruntime.rules.operands import finished, operands, wide
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Value, Writer

aten = torch.ops.aten

COMPARISONS = {
    "Equal": (aten.eq.Tensor, aten.eq.Scalar),
    "Different": (aten.ne.Tensor, aten.ne.Scalar),
    "Less": (aten.lt.Tensor, aten.lt.Scalar),
    "LessOrEqual": (aten.le.Tensor, aten.le.Scalar),
    "Greater": (aten.gt.Tensor, aten.gt.Scalar),
    "GreaterOrEqual": (aten.ge.Tensor, aten.ge.Scalar),
}
LOGIC = {
    "And": aten.logical_and.default,
    "Or": aten.logical_or.default,
    "Xor": aten.logical_xor.default,
}
BITWISE = {
    "And": (aten.bitwise_and.Tensor, aten.bitwise_and.Scalar),
    "Or": (aten.bitwise_or.Tensor, aten.bitwise_or.Scalar),
    "Xor": (aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar),
}


def _comparison(kind: str, w: Writer, call: Call) -> Value:
    a, b = operands(w, call, "self", "other")
    if a.dtype is torch.bool and kind not in ("Equal", "Different"):
        a, b = w.cast(a, torch.uint8), w.cast(b, torch.uint8)
    if kind == "Different":
        return w.op("Not", w.op("Equal", a, b, dtype=torch.bool))
    return w.op(kind, a, b, dtype=torch.bool)


def _logic(kind: str, w: Writer, call: Call) -> Value:
    a, b = (w.cast(w.value(call[name]), torch.bool) for name in ("self", "other"))
    return w.op(kind, a, b)


def _bitwise(kind: str, w: Writer, call: Call) -> Value:
    a, b = operands(w, call, "self", "other")
    return finished(w, call, w.op(kind if a.dtype is torch.bool else f"Bitwise{kind}", a, b))


for _kind, _operators in COMPARISONS.items():
    rule(*_operators)(functools.partial(_comparison, _kind))
for _kind, _operator in LOGIC.items():
    rule(_operator)(functools.partial(_logic, _kind))
for _kind, _operators in BITWISE.items():
    rule(*_operators)(functools.partial(_bitwise, _kind))


def chosen(
    w: Writer, condition: Value, a: Value, b: Value, shape: Sequence[Any], *, signed: tuple[bool, bool] = (True, True)
) -> Value:
    """``a`` where the condition holds, else ``b``; both of one dtype.

    Args:
        condition: of booleans.
        a: ONNX Runtime's Where takes the sign from a zero here.
        b: here it does not.
        shape: the result's.
        signed: may there be a zero with a sign in ``a``, in ``b``?
    """
    if a.dtype is torch.bool:
        as_bytes = w.op("Where", condition, w.cast(a, torch.uint8), w.cast(b, torch.uint8), on=1)
        return w.cast(as_bytes, torch.bool)
    if a.dtype not in FLOATS or not signed[0]:
        return w.op("Where", condition, a, b, on=1)
    if not signed[1]:
        return w.op("Where", w.op("Not", condition), b, a, on=1)
    both = [w.reshaped(w.filled(value, shape), [1, *shape]) for value in (b, a)]
    place = w.reshaped(w.filled(w.cast(condition, torch.int64), shape), [1, *shape])
    return w.reshaped(w.op("GatherElements", w.op("Concat", *both, axis=0), place, axis=0), shape)


NUMBERS = {aten.scalar_tensor.default: 0, aten.full.default: 1}  # which argument is the number


def is_signed(given: Any) -> bool:
    """May there be a zero with a sign in a tensor or number?"""
    if isinstance(given, fx.Node):
        if given.target in NUMBERS:
            return is_signed(given.args[NUMBERS[given.target]])
        fake = given.meta["val"]
        return isinstance(fake, torch.Tensor) and fake.dtype in FLOATS
    return isinstance(given, float) and given == 0 and math.copysign(1, given) < 0


@rule(aten.where.self)
def where(w: Writer, call: Call) -> Value:
    """A condition of booleans or bytes."""
    a, b = operands(w, call, "self", "other")
    condition = w.cast(w.value(call["condition"]), torch.bool)
    signed = is_signed(call["self"]), is_signed(call["other"])
    return finished(w, call, chosen(w, condition, a, b, call.out.shape, signed=signed))


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(w: Writer, call: Call) -> Value:
    """The number where the mask is; the result has the tensor's dtype."""
    x = wide(w, call, "self")
    (number,) = operands(w, call, "value", common=call.out.dtype)
    mask = w.cast(w.value(call["mask"]), torch.bool)
    signed = is_signed(call["value"]), is_signed(call["self"])
    return finished(w, call, chosen(w, mask, number, x, call.out.shape, signed=signed))
