"""Arithmetic but for division: sums, products, powers, signs and limits, element by element."""

from __future__ import annotations

import math
from typing import Any

import torch

from jitney_lowering.ir.operations import HALVES, INTEGERS
from jitney_lowering.ir.scalar import (
    Number,
    Scalar,
    absolute,
    eq,
    exp,
    fma,
    is_nan,
    log,
    log1p,
    maximum,
    minimum,
    ne,
    one,
    sqrt,
    two,
    where,
)
from jitney_lowering.rules.pointwise import BOOLS, pointwise
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
prims = torch.ops.prims

UNARY_FLOAT = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma "
    "sqrt rsqrt"
).split()


def _register_unary(name: str) -> None:
    pointwise(getattr(aten, name).default)(lambda x: one(name, x))


for _name in UNARY_FLOAT:
    _register_unary(_name)


def _register_rounding(name: str) -> None:
    """``floor`` and its like: integers are what they are."""
    pointwise(getattr(aten, name).default, refused=BOOLS)(lambda x: one(name, x) if x.is_float else x)


for _name in ("floor", "ceil", "trunc", "round"):
    _register_rounding(_name)


# --- sums and products ----------------------------------------------------------------------------------------------


@pointwise(aten.add.Tensor, aten.add.Scalar, rounded=(1, 2))
def add(a: Scalar, b: Scalar | Number, alpha: Number = 1) -> Scalar:
    """``a + alpha * b``; for truth values ``or``."""
    if isinstance(alpha, bool) and a.dtype is not torch.bool:
        raise NoRule("alpha is a truth value: eager raises")
    if a.dtype is torch.bool:
        b = b if isinstance(b, Scalar) else a.like(b)
        return a | (b & bool(alpha))
    if alpha == 1:
        return a + b
    b = b if isinstance(b, Scalar) else a.like(b)
    # Eager's kernels round once, but for those of halves.
    return fma(b, alpha, a) if a.is_float and not a.is_widened else a + b * alpha


@pointwise(aten.sub.Tensor, aten.sub.Scalar, rounded=(1, 2), refused=BOOLS)
def sub(a: Scalar, b: Scalar | Number, alpha: Number = 1) -> Scalar:
    """``a - alpha * b``."""
    if isinstance(b, bool) or isinstance(alpha, bool):
        raise NoRule("a truth value is subtracted: eager raises")
    if alpha == 0 and a.is_float:
        raise NoRule("alpha is 0, whose sign depends on whether it is an integer")
    return a - b if alpha == 1 else add(a, b, -alpha)


@pointwise(aten.rsub.Tensor, aten.rsub.Scalar, rounded=(1, 2), refused=BOOLS)
def rsub(a: Scalar, b: Scalar | Number, alpha: Number = 1) -> Scalar:
    """``b - alpha * a``."""
    if isinstance(b, bool):
        raise NoRule("subtracted from a truth value: eager raises")
    return sub(b if isinstance(b, Scalar) else a.like(b), a, alpha)


@pointwise(aten.mul.Tensor, aten.mul.Scalar, exact=(1,))
def mul(a: Scalar, b: Scalar | Number) -> Scalar:
    """``a * b``; for truth values ``and``."""
    return a & b if a.dtype is torch.bool else a * b


@pointwise(aten.addcmul.default)
def addcmul(x: Scalar, a: Scalar, b: Scalar, value: Number) -> Scalar:
    """``x + value * a * b``."""
    if not x.is_float:
        return x + (a * b if value == 1 else value * a * b)
    return fma(a if value == 1 else value * a, b, x)


@pointwise(aten.addcdiv.default)
def addcdiv(x: Scalar, a: Scalar, b: Scalar, value: Number) -> Scalar:
    """``x + value * a / b``."""
    return x + (a / b if value == 1 else value * a / b)


@pointwise(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(start: Scalar, end: Scalar, weight: Scalar | Number) -> Scalar:
    """From ``start`` to ``end``; counted from the nearer end, so that both are met exactly."""
    if not isinstance(weight, Scalar):
        near = abs(weight) < 0.5
        return fma(end - start, weight if near else weight - 1, start if near else end)
    nearer = absolute(weight) < 0.5
    return fma(where(nearer, weight, weight - 1), end - start, where(nearer, start, end))


@pointwise(aten.square.default)
def square(x: Scalar) -> Scalar:
    """``x * x``."""
    return mul(x, x)


# --- powers and logarithms ------------------------------------------------------------------------------------------


def pow_number_on_cuda(x: Scalar, exponent: Number) -> Scalar:
    """``x ** exponent`` as CUDA's kernel has it: float16 is as any other dtype."""
    special = SPECIAL_POWERS.get(float(exponent)) if x.is_float else None
    return special(x) if special else pow_number(x, exponent)


@pointwise(aten.pow.Tensor_Scalar, mode="stepwise", cuda_formula=pow_number_on_cuda)
def pow_number(x: Scalar, exponent: Number) -> Scalar:
    """``x ** exponent``; the exponents that eager computes otherwise are computed so here."""
    if not x.is_float:
        return integer_power(x, int(exponent))
    special = SPECIAL_POWERS.get(float(exponent))
    if x.dtype is torch.float16 and exponent not in (0, 1):
        special = None  # eager has no kernels for these
    if special is not None:
        return special(x)
    if float(exponent).is_integer() and 4 <= exponent <= LARGEST_PRODUCT:
        return whole_power(x, int(exponent))
    return two("pow", x, exponent)


LARGEST_PRODUCT = 16
SPECIAL_POWERS: dict[float, Any] = {
    0.0: lambda x: x.like(1.0),
    0.5: sqrt,
    -0.5: lambda x: one("rsqrt", x),
    1.0: lambda x: x,
    -1.0: lambda x: 1 / x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    -2.0: lambda x: 1 / (x * x),
}


def whole_power(x: Scalar, exponent: int) -> Scalar:
    """By squaring, with what each product leaves out beside it, so that the result is rounded about once."""
    if x.dtype in HALVES:
        return integer_power(x.to(torch.float32), exponent).to(x.dtype)
    high = x * x
    low = fma(x, x, -high)
    for n, bit in enumerate(f"{exponent:b}"[1:]):
        if n:
            square = high * high
            high, low = square, fma(high + high, low, fma(high, high, -square))
        if bit == "1":
            product = high * x
            high, low = product, fma(low, x, fma(high, x, -product))
    # An infinity leaves out what is no number; a zero keeps its sign.
    return where(absolute(low) < absolute(high), high + low, high)


def integer_power(x: Scalar, exponent: int) -> Scalar:
    """By squaring; wraps around as eager does."""
    if x.dtype is torch.bool or not 0 <= exponent < 64:
        raise NoRule(f"an integer to the power {exponent}")
    result: Scalar = x.like(1)
    factor = x
    while exponent:
        if exponent & 1:
            result = factor if result.number == 1 else result * factor
        exponent >>= 1
        factor = factor * factor if exponent else factor
    return result


@pointwise(aten.pow.Tensor_Tensor)
def pow_tensor(x: Scalar, exponent: Scalar) -> Scalar:
    """``x ** exponent``, of floating point numbers."""
    if not x.is_float:
        raise NoRule("an integer to the power of a tensor")
    return two("pow", x, exponent)


@pointwise(aten.pow.Scalar, rounded=(0,))
def pow_of_number(base: Number, exponent: Scalar) -> Scalar:
    """``base ** exponent``, of floating point numbers."""
    if not exponent.is_float:
        raise NoRule("an integer to the power of a tensor")
    return exponent.like(1.0) if base == 1 else two("pow", base, exponent)


@pointwise(aten.logaddexp.default)
def logaddexp(a: Scalar, b: Scalar) -> Scalar:
    """``log(exp(a) + exp(b))``."""
    same = eq(a, b) & eq(absolute(a), math.inf)
    return where(same, a, maximum(a, b) + log1p(exp(-absolute(a - b))))


@pointwise(aten.logaddexp2.default)
def logaddexp2(a: Scalar, b: Scalar) -> Scalar:
    """``log2(2**a + 2**b)``."""
    same = eq(a, b) & eq(absolute(a), math.inf)
    return where(same, a, maximum(a, b) + log1p(one("exp2", -absolute(a - b))) * (1 / math.log(2)))


@pointwise(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other, mode="stepwise")
def xlogy(x: Scalar | Number, y: Scalar | Number) -> Scalar:
    """``x * log(y)``, 0 where x is 0."""
    return _x_times(x, y, log)


@pointwise(
    aten.special_xlog1py.default, aten.special_xlog1py.self_scalar, aten.special_xlog1py.other_scalar, mode="stepwise"
)
def xlog1py(x: Scalar | Number, y: Scalar | Number) -> Scalar:
    """``x * log(1 + y)``, 0 where x is 0."""
    return _x_times(x, y, log1p)


def _x_times(x: Scalar | Number, y: Scalar | Number, function: Any) -> Scalar:
    if not isinstance(x, Scalar):
        assert isinstance(y, Scalar)
        x = y.like(x)
    if not isinstance(y, Scalar):
        y = x.like(y)
    return where(is_nan(y), y, where(eq(x, 0), 0, x * function(y)))


@pointwise(aten.special_entr.default, mode="stepwise")
def entr(x: Scalar) -> Scalar:
    """``-x * log(x)``."""
    return where(is_nan(x), x, where(x > 0, -x * log(x), where(eq(x, 0), x.like(0.0), -math.inf)))


# --- signs, limits --------------------------------------------------------------------------------------------------


@pointwise(aten.neg.default)
def neg(x: Scalar) -> Scalar:
    """``-x``."""
    return -x


@pointwise(aten.abs.default, refused=BOOLS)
def abs_(x: Scalar) -> Scalar:
    """``|x|``."""
    return absolute(x)


@pointwise(aten.sign.default, aten.sgn.default)
def sign(x: Scalar) -> Scalar:
    """1, 0 or -1; 0 for nan."""
    if x.dtype in (torch.bool, torch.uint8):
        return ne(x, 0).to(x.dtype)
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@pointwise(aten.signbit.default, mode="own")
def signbit(x: Scalar) -> Scalar:
    """Is the sign minus?"""
    return one("signbit", x) if x.is_float else (x < 0) if x.dtype is not torch.bool else x ^ x


@pointwise(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(a: Scalar, b: Scalar | Number) -> Scalar:
    """``|a|`` with the sign of ``b``."""
    return two("copysign", a, b)


@pointwise(aten.maximum.default)
def maximum_(a: Scalar, b: Scalar) -> Scalar:
    """The greater; nan if one is nan."""
    return maximum(a, b)


@pointwise(aten.minimum.default)
def minimum_(a: Scalar, b: Scalar) -> Scalar:
    """The lesser; nan if one is nan."""
    return minimum(a, b)


@pointwise(aten.fmax.default)
def fmax(a: Scalar, b: Scalar) -> Scalar:
    """The greater, of equal zeros the first; the other if one is nan."""
    return where(is_nan(b), a, where(is_nan(a), b, maximum(b, a)))


@pointwise(aten.fmin.default)
def fmin(a: Scalar, b: Scalar) -> Scalar:
    """The lesser, of equal zeros the first; the other if one is nan."""
    return where(is_nan(b), a, where(is_nan(a), b, minimum(b, a)))


@pointwise(aten.clamp.default, aten.clamp.Tensor, aten.hardtanh.default, rounded=(1, 2))
def clamp(x: Scalar, low: Scalar | Number | None, high: Scalar | Number | None) -> Scalar:
    """Not below ``low``, then not above ``high``."""
    if low is not None:
        x = maximum(_bound(x, low), x)
    return minimum(_bound(x, high), x) if high is not None else x


def _bound(x: Scalar, bound: Scalar | Number) -> Scalar | Number:
    """What ``x`` is compared with; of equal zeros ``x`` stays, as the second operand.

    Eager raises for a number that the integers of ``x`` cannot hold.
    """
    if not isinstance(bound, Scalar) and x.dtype in INTEGERS:
        limits = torch.iinfo(x.dtype)
        if not limits.min <= bound <= limits.max:
            raise NoRule(f"{bound} is no {x.dtype}")
    return bound


@pointwise(aten.clamp_min.default, aten.clamp_min.Tensor, rounded=(1,))
def clamp_min(x: Scalar, low: Scalar | Number) -> Scalar:
    """Not below ``low``."""
    return maximum(_bound(x, low), x)


@pointwise(aten.clamp_max.default, aten.clamp_max.Tensor, rounded=(1,))
def clamp_max(x: Scalar, high: Scalar | Number) -> Scalar:
    """Not above ``high``."""
    return minimum(_bound(x, high), x)


@pointwise(aten.nan_to_num.default, mode="stepwise")
def nan_to_num(x: Scalar, nan: float | None, high: float | None, low: float | None) -> Scalar:
    """Finite numbers instead of nan and infinities."""
    return x if not x.is_float else _finite(x, nan or 0.0, high, low)


def _finite(x: Scalar, nan: float, high: float | None, low: float | None) -> Scalar:
    limits = torch.finfo(x.dtype)
    high = limits.max if high is None else high
    low = limits.min if low is None else low
    return where(is_nan(x), nan, where(eq(x, math.inf), high, where(eq(x, -math.inf), low, x)))


@pointwise(aten.heaviside.default)
def heaviside(x: Scalar, at_zero: Scalar) -> Scalar:
    """0 below zero, 1 above."""
    if x.dtype is torch.bool:
        return where(x, True, at_zero)
    return where(eq(x, 0), at_zero, (x > 0).to(x.dtype))


@pointwise(aten.frac.default)
def frac(x: Scalar) -> Scalar:
    """What is left of truncation."""
    return x - one("trunc", x)


@pointwise(aten.round.decimals)
def round_decimals(x: Scalar, decimals: float) -> Scalar:
    """To a number of decimal places, half to even."""
    if not x.is_float:
        raise NoRule("integers rounded to decimals")
    if decimals == 0:
        return one("round", x)
    power = 10.0 ** abs(decimals)
    return one("round", x / power) * power if decimals < 0 else one("round", x * power) / power


@pointwise(aten.hypot.default)
def hypot(a: Scalar, b: Scalar) -> Scalar:
    """``sqrt(a*a + b*b)``."""
    return two("hypot", a, b)


@pointwise(aten.atan2.default)
def atan2(a: Scalar, b: Scalar) -> Scalar:
    """The angle of (b, a)."""
    return two("atan2", a, b)


@pointwise(aten.nextafter.default)
def nextafter(a: Scalar, b: Scalar) -> Scalar:
    """The next number from ``a`` towards ``b``."""
    if a.dtype not in (torch.float32, torch.float64) or a.is_widened:
        raise NoRule("nextafter of halves" if a.is_widened else f"nextafter of {a.dtype}")
    return two("nextafter", a, b)


@pointwise(aten.sinc.default)
def sinc(x: Scalar) -> Scalar:
    """``sin(pi x) / (pi x)``."""
    product = x * math.pi
    return where(eq(x, 0), 1, one("sin", product) / product)


@pointwise(aten.deg2rad.default)
def deg2rad(x: Scalar) -> Scalar:
    """Degrees to radians."""
    return x * (math.pi / 180)


@pointwise(aten.rad2deg.default)
def rad2deg(x: Scalar) -> Scalar:
    """Radians to degrees."""
    return x * (180 / math.pi)


# --- choices, copies ------------------------------------------------------------------------------------------------


@pointwise(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, own=(0,))
def where_(condition: Scalar, a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """One of two."""
    return where(condition.to_bool(), a, b)


@pointwise(aten.masked_fill.Scalar, aten.masked_fill.Tensor, own=(1,))
def masked_fill(x: Scalar, mask: Scalar, value: Scalar | Number) -> Scalar:
    """``value`` where the mask is true."""
    return where(mask.to_bool(), value, x)


@pointwise(aten.clone.default, aten.lift_fresh_copy.default, aten._to_copy.default)
def copied(x: Scalar, *settings: Any) -> Scalar:
    """The same elements, in another dtype perhaps."""
    return x


@pointwise(prims.convert_element_type.default)
def converted(x: Scalar, dtype: torch.dtype) -> Scalar:
    """In another dtype."""
    return x
