"""Functions of one number, comparisons and logic, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import torch
from jax import lax
from torch import fx

from jitney_xla.rules.call import Call, cast, fake, operand, rule
from jitney_xla.rules.kinds import holds_numbers, is_no_bool, is_no_float, is_single

aten = torch.ops.aten


def _enter_float(name: str, function: Callable[[Any], Any]) -> None:
    @rule(getattr(aten, name).default, only=is_single if name in SINGLE else None)
    def make(call: Call, x: Any) -> Any:
        return call.made(function(cast(x, call.computes)))


SINGLE = ("log1p",)
# Without cosh, sinh (some units less precise than eager's) and atanh (in float64).
FLOAT: dict[str, Callable[[Any], Any]] = {
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atan": lax.atan,
    "cos": lax.cos,
    "erf": lax.erf,
    "exp": lax.exp,
    "expm1": lax.expm1,
    "log": lax.log,
    "log1p": lax.log1p,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / lax.sqrt(x),  # lax.rsqrt is an estimate
    "sigmoid": lambda x: 1 / (1 + lax.exp(-x)),
    "sin": lax.sin,
    "sqrt": lax.sqrt,
    "tan": lax.tan,
    "tanh": lax.tanh,
}
for _name, _function in FLOAT.items():
    _enter_float(_name, _function)


def _enter_rounding(name: str, function: Callable[[Any], Any]) -> None:
    @rule(getattr(aten, name).default, only=is_no_bool)
    def make(call: Call, x: Any) -> Any:
        return function(x) if jnp.issubdtype(x.dtype, jnp.floating) else x


ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "floor": lax.floor,
    "ceil": lax.ceil,
    "trunc": lambda x: jnp.where(x < 0, lax.ceil(x), lax.floor(x)),
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
}
for _name, _function in ROUNDINGS.items():
    _enter_rounding(_name, _function)


@rule(aten.neg.default)
def neg(call: Call, x: Any) -> Any:
    """``-x``."""
    return lax.neg(x)


@rule(aten.abs.default, only=is_no_bool)
def absolute(call: Call, x: Any) -> Any:
    """``|x|``; what is unsigned is as it is."""
    return lax.abs(x) if jnp.issubdtype(x.dtype, jnp.signedinteger) or jnp.issubdtype(x.dtype, jnp.floating) else x


@rule(aten.sign.default, aten.sgn.default)
def sign(call: Call, x: Any) -> Any:
    """-1, 0 or 1; NaN has the sign 0, and so has -0.0."""
    if x.dtype == jnp.bool_:
        return x
    one = jnp.ones((), x.dtype)
    return jnp.where(x > 0, one, jnp.where(x < 0, -one, one * 0)) if _signed(x) else jnp.where(x > 0, one, one * 0)


def _signed(x: Any) -> bool:
    return not jnp.issubdtype(x.dtype, jnp.unsignedinteger)


# --- comparisons and logic ------------------------------------------------------------------------------------------


def common_dtype(node: fx.Node, *positions: int) -> torch.dtype:
    """What these arguments of a node are promoted to."""
    given = [fake(node.args[p]) for p in positions]
    return torch.result_type(given[0], given[1])


def _enter_comparison(name: str, function: Callable[[Any, Any], Any]) -> None:
    packet = getattr(aten, name)

    @rule(packet.Tensor, packet.Scalar)
    def make(call: Call, x: Any, y: Any) -> Any:
        dtype = common_dtype(call.node, 0, 1)
        return function(operand(x, dtype), operand(y, dtype))


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}
for _name, _comparison in COMPARISONS.items():
    _enter_comparison(_name, _comparison)


def _truth(x: Any) -> Any:
    return x if x.dtype == jnp.bool_ else x != 0


@rule(aten.logical_and.default)
def logical_and(call: Call, x: Any, y: Any) -> Any:
    """Are both not zero?"""
    return _truth(x) & _truth(y)


@rule(aten.logical_or.default)
def logical_or(call: Call, x: Any, y: Any) -> Any:
    """Is one not zero?"""
    return _truth(x) | _truth(y)


@rule(aten.logical_xor.default)
def logical_xor(call: Call, x: Any, y: Any) -> Any:
    """Is exactly one not zero?"""
    return _truth(x) ^ _truth(y)


@rule(aten.logical_not.default)
def logical_not(call: Call, x: Any) -> Any:
    """Is it zero?"""
    return ~_truth(x)


def _enter_bits(name: str, function: Callable[[Any, Any], Any]) -> None:
    packet = getattr(aten, name)

    @rule(packet.Tensor, packet.Scalar, only=is_no_float)
    def make(call: Call, x: Any, y: Any) -> Any:
        return function(cast(x, call.computes), cast(y, call.computes))


BITS: dict[str, Callable[[Any, Any], Any]] = {
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
}
for _name, _bits in BITS.items():
    _enter_bits(_name, _bits)


@rule(aten.bitwise_not.default, only=is_no_float)
def bitwise_not(call: Call, x: Any) -> Any:
    """All bits turned; truth values are negated."""
    return ~x


@rule(aten.isnan.default)
def isnan(call: Call, x: Any) -> Any:
    """Is it NaN?"""
    return x != x


@rule(aten.isinf.default)
def isinf(call: Call, x: Any) -> Any:
    """Is it infinite?"""
    return jnp.isinf(x) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.zeros(x.shape, jnp.bool_)


@rule(aten.where.self)
def where(call: Call, condition: Any, x: Any, y: Any) -> Any:
    """``x`` where the condition holds, else ``y``."""
    return jnp.where(_truth(condition), call.made(x), call.made(y))


def _fills(node: fx.Node) -> bool:
    """A number that the dtype holds; a tensor's is not known yet."""
    value = fake(node.args[2])
    return holds_numbers(node) and (not isinstance(value, torch.Tensor) or value.dtype is node.meta["val"].dtype)


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor, only=_fills)
def masked_fill(call: Call, x: Any, mask: Any, value: Any) -> Any:
    """``value`` where the mask holds, else ``x``."""
    return jnp.where(mask, cast(value, x.dtype), x)
