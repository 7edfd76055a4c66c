"""Division, its remainders and its roundings, element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from jitney_lowering.index import at_most
from jitney_lowering.ir.intervals import interval
from jitney_lowering.ir.scalar import Number, Scalar, eq, ne, one, two, where
from jitney_lowering.rules.pointwise import pointwise
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
WHOLE = {"floor": "floordiv", "trunc": "truncdiv"}  # of integers, by the mode of rounding


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


def whole(op: str, a: Scalar, b: Scalar | Number) -> Scalar:
    """Division of integers, or its remainder, by what cannot be zero: loops must not do what eager raises for."""
    number = b.number if isinstance(b, Scalar) else b
    if number is not None and int(number) not in (0, -1):  # the lowest integer by -1 overflows
        return two(op, a, number)
    if number is None and isinstance(b, Scalar):
        low, _ = interval(b.value, {})
        if low is not None and at_most(1, low):
            return two(op, a, two("maximum", b, 1))  # where nothing is computed, it may be any number
    raise NoRule(f"division of integers by {'a tensor' if number is None else number}")


def whole_on_cuda(op: str, a: Scalar, b: Scalar | Number) -> Scalar:
    """The same: nothing is raised, and what comes of zero is any number."""
    if not isinstance(b, Scalar) or b.number is not None:
        return whole(op, a, b)
    return two(op, a, where(eq(b, 0), 1, b))


def div_mode_on_cuda(a: Scalar, b: Scalar | Number, rounding_mode: str | None) -> Scalar:
    """``a / b``, rounded down, to zero, or not, as CUDA's kernels have it."""
    if not a.is_float and rounding_mode is not None:
        return whole_on_cuda(WHOLE[rounding_mode], a, b)
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
        return whole(WHOLE[rounding_mode], a, b)
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


def remainder_on_cuda(a: Scalar, b: Scalar | Number) -> Scalar:
    """``a % b`` as CUDA's kernel has it."""
    return two("remainder", a, b) if a.is_float else whole_on_cuda("remainder", a, b)


@pointwise(aten.remainder.Tensor, aten.remainder.Scalar, rounded=(1,), cuda_formula=remainder_on_cuda)
def remainder(a: Scalar, b: Scalar | Number) -> Scalar:
    """``a % b`` with the sign of ``b``."""
    return two("remainder", a, b) if a.is_float else whole("remainder", a, b)


@pointwise(aten.remainder.Scalar_Tensor, rounded=(0,), cuda_formula=remainder_on_cuda)
def remainder_of_number(a: Scalar, b: Scalar) -> Scalar:
    """The same of a number."""
    return remainder(a, b)


@pointwise(
    aten.fmod.Tensor,
    aten.fmod.Scalar,
    rounded=(1,),
    cuda_formula=lambda a, b: two("fmod", a, b) if a.is_float else whole_on_cuda("fmod", a, b),
)
def fmod(a: Scalar, b: Scalar | Number) -> Scalar:
    """The remainder with the sign of ``a``."""
    return two("fmod", a, b) if a.is_float else whole("fmod", a, b)
