"""Division, its remainders and its roundings, element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from jitney_lowering.ir.scalar import Number, Scalar, eq, ne, one, two, where
from jitney_lowering.rules.pointwise import pointwise
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.signals import NoRule

aten = torch.ops.aten


def inverse(b: Number, dtype: torch.dtype) -> float:
    """``1 / b`` as ``dtype`` has it: CUDA's kernels multiply by it where they divide by a number."""
    kind = np.float64 if dtype is torch.float64 else np.float32
    with np.errstate(all="ignore"):
        return float(kind(1) / kind(b))


def div_on_cuda(a: Scalar, b: Scalar | Number) -> Scalar:
    """``a / b`` as CUDA's kernel has it."""
    return a / b if isinstance(b, Scalar) else a * inverse(b, a.dtype)


@pointwise(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, exact=(1,), cuda_formula=div_on_cuda)
def div(a: Scalar, b: Scalar | Number) -> Scalar:
    """``a / b`` in floating point."""
    return a / b


@pointwise(aten.reciprocal.default)
def reciprocal(x: Scalar) -> Scalar:
    """``1 / x``."""
    return 1 / x


def divisor(b: Scalar | Number, what: str) -> Number:
    """An integer divisor, as a number: loops must not divide by zero, where eager raises."""
    number = b.number if isinstance(b, Scalar) else b
    if number is None or int(number) in (0, -1):  # the lowest integer by -1 overflows
        raise NoRule(f"{what} of integers by {'a tensor' if number is None else number}")
    return number


def div_mode_on_cuda(a: Scalar, b: Scalar | Number, rounding_mode: str | None) -> Scalar:
    """``a / b``, rounded down, to zero, or not, as CUDA's kernels have it."""
    if isinstance(b, Scalar) or not a.is_float or b == 0:
        return div_mode(a, b, rounding_mode)
    wide = a.to(opmath(a.dtype))
    if rounding_mode is None:
        return div_on_cuda(wide, b)
    if rounding_mode == "trunc":
        return one("trunc", div_on_cuda(wide, b))
    return floored(wide, wide.like(b), lambda x: div_on_cuda(x, b))


@pointwise(aten.div.Tensor_mode, aten.div.Scalar_mode, mode="stepwise", cuda_formula=div_mode_on_cuda)
def div_mode(a: Scalar, b: Scalar | Number, rounding_mode: str | None) -> Scalar:
    """``a / b``, rounded down, to zero, or not."""
    if rounding_mode is None:
        return a / b
    floors = rounding_mode == "floor"
    if not a.is_float:
        return two("floordiv" if floors else "truncdiv", a, divisor(b, "division"))
    if isinstance(b, Scalar):
        return floor_div(a, b) if floors else one("trunc", a / b)
    wide = a.to(opmath(a.dtype))  # neither the number nor the quotient is rounded to a half
    return floor_div(wide, wide.like(b)) if floors else one("trunc", wide / wide.like(b))


@pointwise(
    aten.floor_divide.default,
    aten.floor_divide.Scalar,
    mode="stepwise",
    cuda_formula=lambda a, b: div_mode_on_cuda(a, b, "floor"),
)
def floor_divide(a: Scalar, b: Scalar | Number) -> Scalar:
    """``a // b``."""
    return div_mode(a, b, "floor")


def floor_div(a: Scalar, b: Scalar) -> Scalar:
    """``floor(a / b)`` as Python and eager round it: exact, from the remainder."""
    return where(eq(b, 0), a / b, floored(a, b, lambda x: x / b))


def floored(a: Scalar, b: Scalar, over_b: Callable[[Scalar], Scalar]) -> Scalar:
    """``floor(a / b)`` from the remainder, given how to divide by ``b``, which is not zero."""
    mod = two("fmod", a, b)
    quotient = over_b(a - mod)
    quotient = where(ne(mod, 0) & ne(b < 0, mod < 0), quotient - 1, quotient)
    whole = one("floor", quotient)
    whole = where(quotient - whole > 0.5, whole + 1, whole)
    return where(eq(quotient, 0), two("copysign", a.like(0.0), over_b(a)), whole)


@pointwise(aten.remainder.Tensor, aten.remainder.Scalar, rounded=(1,))
def remainder(a: Scalar, b: Scalar | Number) -> Scalar:
    """``a % b`` with the sign of ``b``."""
    return two("remainder", a, b if a.is_float else divisor(b, "remainder"))


@pointwise(aten.remainder.Scalar_Tensor, rounded=(0,))
def remainder_of_number(a: Number, b: Scalar) -> Scalar:
    """The same of a number."""
    return remainder(b.like(a), b)


@pointwise(aten.fmod.Tensor, aten.fmod.Scalar, rounded=(1,))
def fmod(a: Scalar, b: Scalar | Number) -> Scalar:
    """The remainder with the sign of ``a``."""
    return two("fmod", a, b if a.is_float else divisor(b, "remainder"))
