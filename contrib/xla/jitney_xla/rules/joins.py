"""Tensors put together, padded, or written into each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import lax

from jitney_xla.rules.call import Call, number, rule
from jitney_xla.rules.kinds import holds_numbers
from jitney_xla.rules.views import span

aten = torch.ops.aten


@rule(aten.cat.default)
def cat(call: Call, tensors: Sequence[Any], dim: int = 0) -> Any:
    """One behind the other along a dimension; what is empty and has one dimension counts for nothing."""
    parts = [call.made(x) for x in tensors if x.ndim > 1 or x.shape != (0,)]
    return jnp.concatenate(parts, dim)


@rule(aten.stack.default)
def stack(call: Call, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Along a new dimension."""
    return jnp.stack([call.made(x) for x in tensors], dim)


@rule(aten.constant_pad_nd.default, only=holds_numbers)
def pad(call: Call, x: Any, edges: Sequence[int], value: Any = 0) -> Any:
    """With a number around it; negative edges cut."""
    width = [(0, 0, 0)] * x.ndim
    for n in range(len(edges) // 2):
        width[x.ndim - 1 - n] = (edges[2 * n], edges[2 * n + 1], 0)
    return lax.pad(x, number(value, x.dtype), width)


@rule(aten.select_scatter.default)
def select_scatter(call: Call, x: Any, source: Any, dim: int, index: int) -> Any:
    """``x`` with ``source`` at one place along a dimension."""
    axis = dim % x.ndim
    return lax.dynamic_update_index_in_dim(x, call.made(source), index % x.shape[axis], axis)


@rule(aten.slice_scatter.default)
def slice_scatter(
    call: Call, x: Any, source: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """``x`` with ``source`` in a slice of it."""
    axis = dim % x.ndim
    begin, stop = span(x.shape[axis], start, end)
    places = (slice(None),) * axis + (slice(begin, stop, step),)
    return x.at[places].set(call.made(source))
