"""Gamma, error and Bessel functions, element by element."""

from __future__ import annotations

import math

import torch

from jitney_lowering.ir.operations import HALVES
from jitney_lowering.ir.scalar import Scalar, absolute, eq, exp, log, log1p, one, sqrt, two, where
from jitney_lowering.rules.pointwise import pointwise
from jitney_lowering.rules.series import (
    ERFCX,
    ERFINV_FAR,
    ERFINV_NEAR,
    I0_FAR,
    I0_NEAR,
    I1_FAR,
    I1_NEAR,
    polynomial,
    series,
)
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
FAR = 10  # from here on the digamma function is its asymptotic series
DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
TRIGAMMA_STEPS = 6
MIDDLE = 3.75  # where erfcx's series has its own


@pointwise(aten.digamma.default)
def digamma(x: Scalar) -> Scalar:
    """The derivative of ``lgamma``: ten steps up to where its series is exact, and reflected below 0."""
    t = where(x < 0, 1 - x, x)
    # 1 / (t + i) + 1 / (t + 9 - i) = (2 t + 9) / (t (t + 9) + i (9 - i))
    product = t * (t + (FAR - 1))
    steps = product.like(0.0)
    for i in range(FAR // 2):
        steps = steps + (t + t + (FAR - 1)) / (product + i * (FAR - 1 - i))
    far = t >= FAR
    w = where(far, t, t + FAR)
    inverse = 1 / (w * w)
    found = log(w) - 0.5 / w - inverse * polynomial(DIGAMMA, inverse) - where(far, 0.0, steps)
    fraction = x - one("round", x)
    found = where(x < 0, where(eq(fraction, 0), math.nan, found - math.pi / one("tan", math.pi * fraction)), found)
    return where(eq(x, 0), two("copysign", x.like(math.inf), -x), found)


@pointwise(aten.polygamma.default, refused=frozenset({torch.float16}))
def polygamma(n: Scalar | int, x: Scalar) -> Scalar:
    """Derivatives of ``digamma``: that itself, and the first."""
    order = n.number if isinstance(n, Scalar) else n
    if order == 0:
        return digamma(x)
    if order != 1:
        raise NoRule(f"aten.polygamma.default of order {order}")
    below = x < 0.5
    sine = one("sin", math.pi * x)
    t = where(below, 1 - x, x)
    steps = t.like(0.0)
    for _ in range(TRIGAMMA_STEPS):
        steps = steps + 1 / (t * t)
        t = t + 1
    inverse = 1 / (t * t)
    found = steps + (1 + 1 / (2 * t) + inverse * (1 / 6 - inverse * (1 / 30 - inverse * (1 / 42)))) / t
    return where(below, math.pi**2 / (sine * sine) - found, found)


@pointwise(aten.erfinv.default)
def erfinv(y: Scalar) -> Scalar:
    """The inverse of ``erf``; in float64 with one of Newton's steps, by erf or erfc, of which one is exact there."""
    w = -log((1 - y) * (1 + y))
    root = sqrt(w)
    low, high = math.sqrt(6), 6.2
    near = polynomial(ERFINV_NEAR, w * (1 / 3) - 1)
    far = polynomial(ERFINV_FAR, (root - (low + high) / 2) * (2 / (high - low)))
    found = y * where(w < 6, near, far)
    if y.dtype is torch.float64:
        size, x = absolute(y), absolute(found)
        beyond = where(size < 0.5, size - one("erf", x), one("erfc", x) - (1 - size))
        found = two("copysign", x + beyond * (math.sqrt(math.pi) / 2) * exp(x * x), y)
    return where(eq(absolute(y), 1), two("copysign", y.like(math.inf), y), found)


@pointwise(aten.special_erfcx.default, refused=HALVES)
def erfcx(x: Scalar) -> Scalar:
    """``exp(x * x) * erfc(x)``."""
    size = absolute(x)
    found = series(ERFCX, 1 - 2 * MIDDLE / (size + MIDDLE)) / (1 + 2 * size)
    return where(x < 0, 2 * exp(x * x) - found, found)


@pointwise(aten.special_log_ndtr.default, refused=HALVES)
def log_ndtr(x: Scalar) -> Scalar:
    """The logarithm of the normal distribution's function."""
    t = x * math.sqrt(0.5)
    return where(x < -1, log(erfcx(-t) / 2) - t * t, log1p(one("erfc", t) / -2))


def _scaled(x: Scalar, near: tuple[float, ...], far: tuple[float, ...]) -> tuple[Scalar, Scalar]:
    """A modified Bessel function of ``|x|`` times ``exp(-|x|)``: from its series up to 8, and beyond."""
    size = absolute(x)
    return series(near, size * 0.25 - 1), series(far, 16 / size - 1) / sqrt(size)


@pointwise(aten.special_i0e.default)
def i0e(x: Scalar) -> Scalar:
    """``exp(-|x|) * i0(x)``."""
    near, far = _scaled(x, I0_NEAR, I0_FAR)
    return where(absolute(x) <= 8, near, far)


@pointwise(aten.i0.default)
def i0(x: Scalar) -> Scalar:
    """The modified Bessel function of order 0."""
    return exp(absolute(x)) * i0e(x)


@pointwise(aten.special_i1e.default)
def i1e(x: Scalar) -> Scalar:
    """``exp(-|x|) * i1(x)``."""
    size = absolute(x)
    near, far = _scaled(x, I1_NEAR, I1_FAR)
    found = where(size <= 8, near * size, far)
    return where(x < 0, -found, found)  # of -0.0 it is 0.0, in eager too


@pointwise(aten.special_i1.default)
def i1(x: Scalar) -> Scalar:
    """The modified Bessel function of order 1."""
    return exp(absolute(x)) * i1e(x)


@pointwise(aten.angle.default, refused=HALVES)  # which CUDA's kernel does
def angle(x: Scalar) -> Scalar:
    """Pi below 0."""
    return where(x < 0, math.pi, where(one("isnan", x), x, 0.0))
