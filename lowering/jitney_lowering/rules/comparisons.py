"""Comparisons, and what is made of truth values and bits, element by element."""

from __future__ import annotations

import math

import torch

from jitney_lowering.ir.scalar import Number, Scalar, absolute, eq, is_nan, two
from jitney_lowering.rules.pointwise import pointwise

aten = torch.ops.aten


def _register_comparison(name: str) -> None:
    packet = getattr(aten, name)
    pointwise(packet.Tensor, packet.Scalar, mode="compare")(lambda a, b: two(name, a, b))


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _register_comparison(_name)


@pointwise(aten.isnan.default, mode="own")
def isnan(x: Scalar) -> Scalar:
    """Is it not a number?"""
    return is_nan(x)


@pointwise(aten.isinf.default, mode="own")
def isinf(x: Scalar) -> Scalar | bool:
    """Is it infinite?"""
    return eq(absolute(x), math.inf) if x.is_float else False


@pointwise(aten.isposinf.default, mode="own")
def isposinf(x: Scalar) -> Scalar | bool:
    """Is it infinite and positive?"""
    return eq(x, math.inf) if x.is_float else False


@pointwise(aten.isneginf.default, mode="own")
def isneginf(x: Scalar) -> Scalar | bool:
    """Is it infinite and negative?"""
    return eq(x, -math.inf) if x.is_float else False


@pointwise(aten.logical_and.default, mode="own")
def logical_and(a: Scalar, b: Scalar) -> Scalar:
    """Are both not zero?"""
    return a.to_bool() & b.to_bool()


@pointwise(aten.logical_or.default, mode="own")
def logical_or(a: Scalar, b: Scalar) -> Scalar:
    """Is one not zero?"""
    return a.to_bool() | b.to_bool()


@pointwise(aten.logical_xor.default, mode="own")
def logical_xor(a: Scalar, b: Scalar) -> Scalar:
    """Is exactly one not zero?"""
    return a.to_bool() ^ b.to_bool()


@pointwise(aten.logical_not.default, mode="own")
def logical_not(x: Scalar) -> Scalar:
    """Is it zero?"""
    return ~x.to_bool()


# --- bits -------------------------------------------------------------------------------------------------------------


def _register_bitwise(name: str, op: str) -> None:
    packet, method = getattr(aten, f"bitwise_{name}"), getattr(aten, f"__{name}__")

    def formula(a: Scalar | Number, b: Scalar | Number) -> Scalar:
        return two(op, a, b)

    pointwise(packet.Tensor, packet.Scalar, packet.Scalar_Tensor, method.Tensor, method.Scalar)(formula)


for _name in ("and", "or", "xor"):
    _register_bitwise(_name, _name)


@pointwise(aten.bitwise_not.default)
def bitwise_not(x: Scalar) -> Scalar:
    """All bits turned."""
    return ~x


@pointwise(
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_left_shift.Tensor_Scalar,
    aten.bitwise_left_shift.Scalar_Tensor,
    aten.__lshift__.Tensor,
    aten.__lshift__.Scalar,
)
def left_shift(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """``a << b``."""
    return two("shl", a, b)


@pointwise(
    aten.bitwise_right_shift.Tensor,
    aten.bitwise_right_shift.Tensor_Scalar,
    aten.bitwise_right_shift.Scalar_Tensor,
    aten.__rshift__.Tensor,
    aten.__rshift__.Scalar,
)
def right_shift(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """``a >> b``."""
    return two("shr", a, b)
