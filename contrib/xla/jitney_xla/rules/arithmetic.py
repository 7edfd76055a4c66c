"""Sums, products, quotients, powers, extremes and casts, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import torch
from jax import lax
from torch import fx

from jitney_xla.exchange import DTYPES
from jitney_xla.rules.call import HALVES, Call, cast, converted, fake, operand, rule
from jitney_xla.rules.kinds import is_float, is_no_bool

aten = torch.ops.aten


def pair(call: Call, x: Any, y: Any, whole: bool = False) -> tuple[Any, Any]:
    """Two operands in the dtype to compute in, in one shape.

    Args:
        call: of the operator.
        x, y: arrays or numbers.
        whole: eager's kernel for halves takes a single second operand as it is, not rounded to a half.
    """
    kept = whole and getattr(y, "size", 1) == 1
    right = cast(y, call.computes) if kept else operand(y, call.dtype)
    return tuple(jnp.broadcast_arrays(operand(x, call.dtype), right))


@rule(aten.add.Tensor, aten.add.Scalar)
def add(call: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    """``x + alpha * y``; for truth values ``or``."""
    x, y = pair(call, x, y)
    if call.dtype is torch.bool:
        return x | (y & bool(alpha))
    return call.made(x + _times(call, y, alpha))


@rule(aten.sub.Tensor, aten.sub.Scalar, only=is_no_bool)
def sub(call: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    """``x - alpha * y``."""
    x, y = pair(call, x, y)
    return call.made(x - _times(call, y, alpha))


def _times(call: Call, y: Any, alpha: Any) -> Any:
    return y if alpha == 1 else y * operand(alpha, call.dtype)


@rule(aten.mul.Tensor, aten.mul.Scalar)
def mul(call: Call, x: Any, y: Any) -> Any:
    """``x * y``; for truth values ``and``."""
    x, y = pair(call, x, y, whole=True)
    return x & y if call.dtype is torch.bool else call.made(x * y)


@rule(aten.div.Tensor, aten.div.Scalar)
def div(call: Call, x: Any, y: Any) -> Any:
    """``x / y`` in floating point."""
    return call.made(lax.div(*pair(call, x, y, whole=True)))


@rule(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_rounded(call: Call, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """``x / y``, rounded down or to zero; dividing an integer by zero is eager's error."""
    alone = getattr(y, "size", 1) == 1
    x, y = pair(call, x, y, whole=True)
    if rounding_mode is None:
        return call.made(lax.div(x, y))
    if call.dtype in HALVES and not alone:  # eager rounds on the way
        x, y = call.made(x), call.made(y)
    if jnp.issubdtype(x.dtype, jnp.floating):
        if rounding_mode == "floor":
            return call.made(_floor_div(x, y))
        quotient = lax.div(x, y)
        return call.made(jnp.where(quotient < 0, lax.ceil(quotient), lax.floor(quotient)))
    y = _no_zero(call, y)
    quotient = lax.div(x, y)
    if rounding_mode == "trunc" or jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return quotient
    return jnp.where((lax.rem(x, y) != 0) & ((x < 0) != (y < 0)), quotient - 1, quotient)


def _no_zero(call: Call, y: Any) -> Any:
    call.conditions.append(y != 0)
    return jnp.where(y == 0, jnp.ones_like(y), y)


def _floor_div(x: Any, y: Any) -> Any:
    """As eager's kernel has it: from the remainder, which is exact."""
    rest = lax.rem(x, y)
    quotient = lax.div(x - rest, y)
    quotient = jnp.where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    floor = lax.floor(quotient)
    floor = jnp.where(quotient - floor > 0.5, floor + 1, floor)
    plain = lax.div(x, y)
    return jnp.where(y == 0, plain, jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(x), plain), floor))


@rule(aten.remainder.Tensor, aten.remainder.Scalar)
def remainder(call: Call, x: Any, y: Any) -> Any:
    """What is left of ``x // y``: has the sign of ``y``."""
    x, y = pair(call, x, y)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        y = _no_zero(call, y)
    rest = lax.rem(x, y)
    return call.made(jnp.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest))


@rule(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(call: Call, x: Any, y: Any) -> Any:
    """What is left of ``x / y`` cut to an integer: has the sign of ``x``."""
    x, y = pair(call, x, y)
    return call.made(lax.rem(x, y if jnp.issubdtype(x.dtype, jnp.floating) else _no_zero(call, y)))


# --- powers ---------------------------------------------------------------------------------------------------------

# Exponents that eager's kernel computes otherwise than by `pow`.
POWERS = {
    0.5: lax.sqrt,
    -0.5: lambda x: 1 / lax.sqrt(x),
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    -1.0: lambda x: 1 / x,
    -2.0: lambda x: 1 / (x * x),
}


def _plain_power(node: fx.Node) -> bool:
    return is_float(node) and isinstance(node.args[1], (int, float))


@rule(aten.pow.Tensor_Scalar, only=_plain_power)
def pow_scalar(call: Call, x: Any, y: float) -> Any:
    """``x`` to a power that is a number."""
    x = cast(x, call.computes)
    if y == 0:
        return call.made(jnp.ones_like(x))
    known = None if call.dtype is torch.float16 and abs(y) == 0.5 else POWERS.get(float(y))
    return call.made(known(x) if known else lax.pow(x, jnp.broadcast_to(operand(y, call.dtype), x.shape)))


@rule(aten.pow.Tensor_Tensor, aten.pow.Scalar, only=is_float)
def pow_tensor(call: Call, x: Any, y: Any) -> Any:
    """``x`` to the power ``y``."""
    return call.made(lax.pow(*pair(call, x, y)))


# --- extremes -------------------------------------------------------------------------------------------------------


@rule(aten.maximum.default)
def maximum(call: Call, x: Any, y: Any) -> Any:
    """The larger one; NaN if one is NaN."""
    return call.made(lax.max(*pair(call, x, y)))


@rule(aten.minimum.default)
def minimum(call: Call, x: Any, y: Any) -> Any:
    """The smaller one; NaN if one is NaN."""
    return call.made(lax.min(*pair(call, x, y)))


def _bounds_fit(node: fx.Node) -> bool:
    """Eager casts NaN bounds in its own ways, and refuses those that the dtype does not hold."""
    bounds: list[Any] = [b for b in node.args[1:] if b is not None]
    dtype = node.meta["val"].dtype
    if any(not isinstance(b, (int, float)) or b != b for b in bounds):
        return False
    if dtype.is_floating_point:
        return all(abs(b) == math.inf or abs(b) <= torch.finfo(dtype).max for b in bounds)
    return dtype is not torch.bool and all(torch.iinfo(dtype).min <= b <= torch.iinfo(dtype).max for b in bounds)


@rule(aten.hardtanh.default, only=_bounds_fit)
def hardtanh(call: Call, x: Any, low: Any = -1, high: Any = 1) -> Any:
    """Not below ``low``, then not above ``high``."""
    return _clamped(call, x, low, high)


@rule(aten.clamp.default, only=_bounds_fit)
def clamp(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    """Not below ``low``, then not above ``high``; NaN stays."""
    return _clamped(call, x, low, high)


@rule(aten.clamp.Tensor, only=is_no_bool)
def clamp_tensor(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    """The same with bounds for each element, which may be NaN."""
    return _clamped(call, x, low, high)


def _clamped(call: Call, x: Any, low: Any, high: Any) -> Any:
    x = operand(x, call.dtype)
    if low is not None:
        x = lax.max(*pair(call, x, low))
    if high is not None:
        x = lax.min(*pair(call, x, high))
    return call.made(x)


# --- casts ----------------------------------------------------------------------------------------------------------


def _casts(position: int) -> Callable[[fx.Node], bool]:
    """Floats to unsigned integers, and what does not fit: eager's numbers are the processor's, XLA's are its own."""

    def only(node: fx.Node) -> bool:
        source, target = fake(node.args[position]).dtype, node.meta["val"].dtype
        return not source.is_floating_point or target.is_floating_point or target in (torch.bool, torch.int64)

    return only


@rule(aten._to_copy.default, only=_casts(0))
def to_copy(call: Call, x: Any, **kwargs: Any) -> Any:
    """The numbers in another dtype; a float beyond the range of int64, or NaN, is left to eager."""
    dtype = DTYPES[call.dtype]
    if dtype == jnp.bool_:
        return x != 0 if x.dtype != jnp.bool_ else x
    if jnp.issubdtype(x.dtype, jnp.floating) and not jnp.issubdtype(dtype, jnp.floating):
        call.conditions.append(lax.abs(x.astype(jnp.float64)) < 2.0**63)
    return converted(x, call.dtype)


@rule(torch.ops.prims.convert_element_type.default, only=_casts(0))
def convert(call: Call, x: Any, dtype: torch.dtype) -> Any:
    """The same, as decompositions write it."""
    return to_copy(call, x)


@rule(aten.copy.default, only=_casts(1))
def copy(call: Call, x: Any, source: Any, non_blocking: bool = False) -> Any:
    """The numbers of ``source`` in the shape and dtype of ``x``."""
    return jnp.broadcast_to(to_copy(call, source), x.shape)
