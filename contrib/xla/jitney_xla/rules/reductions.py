"""Sums, means, extremes, softmax and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import lax

from jitney_xla.rules.call import Call, cast, rule
from jitney_xla.rules.kinds import is_first_float, is_float, is_no_bool, stays_float

aten = torch.ops.aten

# Of float32, more numbers than these are summed in float64: XLA adds up one after the other, which is less precise
# than eager's tree of sums.
SHORT = 64


def dims_of(x: Any, dim: int | Sequence[int] | None) -> tuple[int, ...]:
    """Dimensions as numbers from 0 on; all if there are none."""
    given = [dim] if isinstance(dim, int) else list(dim or range(x.ndim))
    return tuple(sorted(d % x.ndim for d in given)) if x.ndim else ()


def total(x: Any, dims: Sequence[int], keepdim: bool = False) -> Any:
    """The sum over dimensions, at least as precise as eager's; of integers, around their width."""
    count = 1
    for d in dims:
        count *= x.shape[d]
    wide = x.astype(jnp.float64) if x.dtype == jnp.float32 and count > SHORT else x
    made = lax.reduce(wide, jnp.zeros((), wide.dtype), lax.add, tuple(dims)).astype(x.dtype)
    return jnp.expand_dims(made, tuple(dims)) if keepdim else made


def number_of(x: Any, dims: Sequence[int]) -> int:
    """How many numbers go into one."""
    count = 1
    for d in dims:
        count *= x.shape[d]
    return count


@rule(aten.sum.dim_IntList, aten.sum.default, only=stays_float)
def sums(call: Call, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The sum over dimensions."""
    x = cast(x, call.computes)
    return call.made(total(x, dims_of(x, dim), keepdim))


@rule(aten.mean.dim, aten.mean.default, only=is_float)
def mean(call: Call, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The mean over dimensions."""
    x = cast(x, call.computes)
    dims = dims_of(x, dim)
    return call.made(total(x, dims, keepdim) / number_of(x, dims))


@rule(aten.var.correction, only=is_first_float)
def var(call: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """The variance over dimensions: the mean of squared distances from the mean."""
    x = cast(x, call.computes)
    return call.made(variance(x, dims_of(x, dim), 1 if correction is None else correction, keepdim))


def variance(x: Any, dims: Sequence[int], correction: float, keepdim: bool) -> Any:
    """The variance; of no numbers beyond the correction it is what dividing by zero gives."""
    count = number_of(x, dims)
    center = total(x, dims, keepdim=True) / count
    spread = total((x - center) ** 2, dims, keepdim)
    return spread / jnp.asarray(max(count - correction, 0), x.dtype)


@rule(aten.prod.default, aten.prod.dim_int, only=stays_float)
def prod(call: Call, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The product over a dimension, or of all."""
    x = cast(x, call.computes)
    dims = dims_of(x, dim)
    made = lax.reduce(x, jnp.ones((), x.dtype), lax.bitwise_and if x.dtype == jnp.bool_ else lax.mul, dims)
    return call.made(jnp.expand_dims(made, dims) if keepdim else made)


@rule(aten.any.default, aten.any.dim, aten.any.dims)
def any_(call: Call, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Is one of them not zero? An empty list of dimensions is none here, unlike elsewhere."""
    dims = () if isinstance(dim, (list, tuple)) and not dim else dims_of(x, dim)
    return call.made(jnp.any(x != 0, axis=dims, keepdims=keepdim))


# --- extremes -------------------------------------------------------------------------------------------------------


@rule(aten.amax.default)
def amax(call: Call, x: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """The largest; NaN if one is NaN."""
    return jnp.max(x, axis=dims_of(x, dim), keepdims=keepdim)


@rule(aten.amin.default)
def amin(call: Call, x: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """The smallest; NaN if one is NaN."""
    return jnp.min(x, axis=dims_of(x, dim), keepdims=keepdim)


def _place(x: Any, dim: int | None, largest: bool, keepdim: bool) -> Any:
    """Where the first extreme is; NaN is more extreme than everything."""
    if x.ndim == 0:
        return jnp.zeros((), jnp.int64)
    find = lax.argmax if largest else lax.argmin
    if dim is None:
        found = find(x.reshape(-1), 0, jnp.int64)
        return found.reshape((1,) * x.ndim) if keepdim else found
    found = find(x, dim % x.ndim, jnp.int64)
    return jnp.expand_dims(found, dim % x.ndim) if keepdim else found


@rule(aten.argmax.default, only=is_no_bool)
def argmax(call: Call, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Where the largest is."""
    return _place(x, dim, True, keepdim)


@rule(aten.argmin.default, only=is_no_bool)
def argmin(call: Call, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Where the smallest is."""
    return _place(x, dim, False, keepdim)


@rule(aten.max.dim)
def max_dim(call: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The largest along a dimension, and where it is."""
    return jnp.max(x, axis=dims_of(x, dim), keepdims=keepdim), _place(x, dim, True, keepdim)


@rule(aten.min.dim)
def min_dim(call: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The smallest along a dimension, and where it is."""
    return jnp.min(x, axis=dims_of(x, dim), keepdims=keepdim), _place(x, dim, False, keepdim)


# --- softmax, running sums ------------------------------------------------------------------------------------------


@rule(aten._softmax.default, only=is_first_float)
def softmax(call: Call, x: Any, dim: int, half_to_float: bool) -> Any:
    """``exp(x)`` over its sum."""
    x = cast(x, call.computes)
    dims = dims_of(x, dim)
    made = lax.exp(x - jnp.max(x, axis=dims, keepdims=True))
    return call.made(made / total(made, dims, keepdim=True))


@rule(aten._log_softmax.default, only=is_first_float)
def log_softmax(call: Call, x: Any, dim: int, half_to_float: bool) -> Any:
    """The logarithm of softmax."""
    x = cast(x, call.computes)
    dims = dims_of(x, dim)
    moved = x - jnp.max(x, axis=dims, keepdims=True)
    return call.made(moved - lax.log(total(lax.exp(moved), dims, keepdim=True)))


@rule(aten.cumsum.default, only=stays_float)
def cumsum(call: Call, x: Any, dim: int, dtype: Any = None) -> Any:
    """Running sums; of float32 in float64, as eager's kernel has them."""
    x = cast(x, call.computes)
    if x.ndim == 0:
        return call.made(x)
    wide = x.astype(jnp.float64) if x.dtype == jnp.float32 else x
    return call.made(lax.cumsum(wide, dim % x.ndim))
