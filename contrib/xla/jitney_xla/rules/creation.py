"""Tensors out of numbers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch
from jax import lax

from jitney_xla.exchange import DTYPES
from jitney_xla.rules.call import Call, number, rule
from jitney_xla.rules.kinds import holds_numbers

aten = torch.ops.aten


def filled(call: Call, shape: Any, value: Any) -> Any:
    """One number everywhere."""
    dtype = DTYPES[call.dtype]
    return jnp.broadcast_to(number(bool(value) if dtype == jnp.bool_ else value, dtype), tuple(shape))


@rule(aten.full.default, only=holds_numbers)
def full(call: Call, size: Any, value: Any, **kwargs: Any) -> Any:
    """One number everywhere."""
    return filled(call, size, value)


@rule(aten.full_like.default, only=holds_numbers)
def full_like(call: Call, x: Any, value: Any, **kwargs: Any) -> Any:
    """One number in the shape of ``x``."""
    return filled(call, x.shape, value)


@rule(aten.zeros.default)
def zeros(call: Call, size: Any, **kwargs: Any) -> Any:
    """Zeros."""
    return filled(call, size, 0)


@rule(aten.ones.default)
def ones(call: Call, size: Any, **kwargs: Any) -> Any:
    """Ones."""
    return filled(call, size, 1)


@rule(aten.zeros_like.default)
def zeros_like(call: Call, x: Any, **kwargs: Any) -> Any:
    """Zeros in the shape of ``x``."""
    return filled(call, x.shape, 0)


@rule(aten.ones_like.default)
def ones_like(call: Call, x: Any, **kwargs: Any) -> Any:
    """Ones in the shape of ``x``."""
    return filled(call, x.shape, 1)


@rule(aten.scalar_tensor.default, only=holds_numbers)
def scalar_tensor(call: Call, value: Any, **kwargs: Any) -> Any:
    """A number as a tensor."""
    return filled(call, (), value)


@rule(aten.fill.Scalar, only=holds_numbers)
def fill(call: Call, x: Any, value: Any) -> Any:
    """One number in place of those of ``x``."""
    return filled(call, x.shape, value)


@rule(torch.ops.prims.iota.default)
def iota(call: Call, length: int, *, start: int, step: int, **kwargs: Any) -> Any:
    """Integers one after the other."""
    dtype = DTYPES[call.dtype]
    return number(start, dtype) + lax.iota(dtype, length) * number(step, dtype)


def _integers(node: Any) -> bool:
    """Eager's steps in floating point are rounded in its own ways."""
    return not node.meta["val"].dtype.is_floating_point and all(not isinstance(a, float) for a in node.args)


@rule(aten.arange.start_step, only=_integers)
def arange(call: Call, start: int, end: int, step: int = 1, **kwargs: Any) -> Any:
    """Integers from ``start`` to before ``end``."""
    return jnp.arange(start, end, step, dtype=DTYPES[call.dtype])
