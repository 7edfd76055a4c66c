"""Layer, group and batch norms, forward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import lax

from jitney_xla.exchange import DTYPES
from jitney_xla.rules.call import Call, cast, rule
from jitney_xla.rules.reductions import total, variance

aten = torch.ops.aten


def normalized(x: Any, dims: Sequence[int], eps: float) -> tuple[Any, Any, Any]:
    """``x`` with mean 0 and variance 1 over dimensions; the mean; one over the deviation."""
    count = math.prod(x.shape[d] for d in dims)
    mean = total(x, dims, keepdim=True) / count
    scale = 1 / lax.sqrt(variance(x, dims, 0, keepdim=True) + eps)
    return (x - mean) * scale, mean, scale


def _as_promised(call: Call, results: Sequence[Any]) -> list[Any]:
    """Each result in its dtype and shape."""
    made = []
    for val, array in zip(call.val, results, strict=True):
        made.append(lax.convert_element_type(array, DTYPES[val.dtype]))
    return made


@rule(aten.native_layer_norm.default)
def layer_norm(call: Call, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    """Over the last dimensions; also the mean and one over the deviation."""
    x = cast(x, call.computes)
    made, mean, scale = normalized(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    made = made if weight is None else made * weight.astype(made.dtype)
    made = made if bias is None else made + bias.astype(made.dtype)
    return _as_promised(call, [made, mean, scale])


@rule(aten.native_group_norm.default)
def group_norm(
    call: Call, x: Any, weight: Any, bias: Any, n: int, channels: int, places: int, groups: int, eps: float
) -> Any:
    """Over groups of channels; also the mean and one over the deviation."""
    grouped = cast(x, call.computes).reshape(n, groups, -1)
    made, mean, scale = normalized(grouped, (2,), eps)
    return _as_promised(call, [_affine(made.reshape(x.shape), weight, bias), mean[..., 0], scale[..., 0]])


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    """Times the weight and plus the bias of its channel."""
    shape = (1, -1) + (1,) * (x.ndim - 2)
    x = x if weight is None else x * weight.astype(x.dtype).reshape(shape)
    return x if bias is None else x + bias.astype(x.dtype).reshape(shape)


@rule(aten._native_batch_norm_legit_no_training.default)
def batch_norm(call: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    """With the statistics that are known."""
    wide = cast(x, call.computes)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    scale = 1 / lax.sqrt(var.astype(wide.dtype) + eps)
    made = (wide - mean.astype(wide.dtype).reshape(shape)) * scale.reshape(shape)
    none = jnp.zeros((0,), wide.dtype)
    return _as_promised(call, [_affine(made, weight, bias), none, none])


def _of_batch(call: Call, x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, tuple[int, ...]]:
    wide = cast(x, call.computes)
    dims = tuple(d for d in range(x.ndim) if d != 1)
    made, mean, scale = normalized(wide, dims, eps)
    return _affine(made, weight, bias), mean.reshape(-1), scale.reshape(-1), dims


@rule(aten._native_batch_norm_legit.no_stats)
def batch_norm_without(call: Call, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    """With the batch's own statistics."""
    return _as_promised(call, _of_batch(call, x, weight, bias, eps)[:3])


@rule(
    aten._native_batch_norm_legit_functional.default,
    only=lambda node: node.args[5] is True and node.args[3] is not None,
)
def batch_norm_training(
    call: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """With the batch's own statistics, and the running ones moved towards them."""
    made, now, scale, dims = _of_batch(call, x, weight, bias, eps)
    wide = cast(x, call.computes)
    count = math.prod(x.shape[d] for d in dims)
    spread = variance(wide, dims, 0, keepdim=False) * (count / max(count - 1, 1))
    moved = [old.astype(wide.dtype) * (1 - momentum) + new * momentum for old, new in ((mean, now), (var, spread))]
    return _as_promised(call, [made, now, scale, *moved])
