"""Activation functions that core ATen keeps whole."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import torch
from jax import lax

from jitney_xla.rules.call import Call, cast, number, rule
from jitney_xla.rules.kinds import is_float, is_no_bool, is_single

aten = torch.ops.aten


@rule(aten.relu.default, only=is_no_bool)
def relu(call: Call, x: Any) -> Any:
    """``x``, but not below zero."""
    return jnp.where(x < 0, jnp.zeros_like(x), x)  # -0.0 stays, as in eager


@rule(aten.gelu.default, only=is_single)
def gelu(call: Call, x: Any, *, approximate: str = "none") -> Any:
    """``x`` times the normal distribution's share below it."""
    x = cast(x, call.computes)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return call.made(0.5 * x * (1 + lax.tanh(inner)))
    return call.made(x * 0.5 * (1 + lax.erf(x * math.sqrt(0.5))))


@rule(aten.elu.default, only=is_float)
def elu(call: Call, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    """``x`` above zero, an exponential below."""
    x = cast(x, call.computes)
    below = lax.expm1(x * number(input_scale, x.dtype)) * number(alpha * scale, x.dtype)
    return call.made(jnp.where(x > 0, x * number(scale, x.dtype), below))


@rule(aten.leaky_relu.default, only=is_float)
def leaky_relu(call: Call, x: Any, slope: float = 0.01) -> Any:
    """``x`` above zero, a part of it below."""
    x = cast(x, call.computes)
    return call.made(jnp.where(x > 0, x, x * number(slope, x.dtype)))
