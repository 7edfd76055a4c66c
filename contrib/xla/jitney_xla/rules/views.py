"""Operators that only place numbers elsewhere: in XLA's graphs, views are as good as copies of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import lax

from jitney_xla.rules.call import Call, rule

aten = torch.ops.aten

VIEWS = {
    aten.alias.default,
    aten.detach.default,
    aten.diagonal.default,
    aten.expand.default,
    aten.permute.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.split_with_sizes.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.t.default,
    aten.transpose.int,
    aten.unsqueeze.default,
    aten.view.default,
}
"""Those that take no memory in eager."""


@rule(aten.alias.default, aten.detach.default, aten.clone.default, aten.contiguous.default)
def same(call: Call, x: Any, **kwargs: Any) -> Any:
    """The same numbers."""
    return x


@rule(aten.lift_fresh_copy.default)
def lifted(call: Call, x: Any) -> Any:
    """A constant."""
    return x


@rule(aten.view.default, aten._unsafe_view.default, aten.reshape.default)
def view(call: Call, x: Any, size: Sequence[int]) -> Any:
    """The numbers in another shape."""
    return jnp.reshape(x, tuple(size))


@rule(aten.expand.default)
def expand(call: Call, x: Any, size: Sequence[int], implicit: bool = False) -> Any:
    """Repeated along dimensions of size one."""
    have = (1,) * (len(size) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(h if s == -1 else s for h, s in zip(have, size, strict=True)))


@rule(aten.permute.default)
def permute(call: Call, x: Any, dims: Sequence[int]) -> Any:
    """Dimensions in another order."""
    return jnp.transpose(x, [d % x.ndim for d in dims]) if x.ndim else x


@rule(aten.transpose.int)
def transpose(call: Call, x: Any, one: int, other: int) -> Any:
    """Two dimensions in each other's place."""
    return jnp.swapaxes(x, one, other) if x.ndim else x


@rule(aten.t.default)
def t(call: Call, x: Any) -> Any:
    """A matrix on its side."""
    return jnp.swapaxes(x, 0, 1) if x.ndim == 2 else x


@rule(aten.unsqueeze.default)
def unsqueeze(call: Call, x: Any, dim: int) -> Any:
    """With one more dimension of size one."""
    return jnp.expand_dims(x, dim % (x.ndim + 1))


@rule(aten.squeeze.default)
def squeeze(call: Call, x: Any) -> Any:
    """Without dimensions of size one."""
    return jnp.reshape(x, [n for n in x.shape if n != 1])


@rule(aten.squeeze.dim, aten.squeeze.dims)
def squeeze_dims(call: Call, x: Any, dims: int | Sequence[int]) -> Any:
    """Without these dimensions, if they have size one."""
    if not x.ndim:
        return x
    gone = {d % x.ndim for d in ([dims] if isinstance(dims, int) else dims)}
    return jnp.reshape(x, [n for d, n in enumerate(x.shape) if n != 1 or d not in gone])


def span(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Where a slice begins and ends."""
    begin, stop, _ = slice(start, end).indices(size)
    return begin, max(begin, stop)


@rule(aten.slice.Tensor)
def slice_(call: Call, x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    """Every so many along a dimension."""
    begin, stop = span(x.shape[dim], start, end)
    return lax.slice_in_dim(x, begin, stop, step, dim % x.ndim)


@rule(aten.select.int)
def select(call: Call, x: Any, dim: int, index: int) -> Any:
    """One place along a dimension."""
    return lax.index_in_dim(x, index, dim % x.ndim, keepdims=False)


@rule(aten.split_with_sizes.default)
def split(call: Call, x: Any, sizes: Sequence[int], dim: int = 0) -> Any:
    """Cut along a dimension."""
    made, at = [], 0
    for size in sizes:
        made.append(lax.slice_in_dim(x, at, at + size, 1, dim % x.ndim))
        at += size
    return made


@rule(aten.diagonal.default)
def diagonal(call: Call, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """What lies on a diagonal of two dimensions."""
    return jnp.diagonal(x, offset, dim1, dim2)


@rule(aten.flip.default)
def flip(call: Call, x: Any, dims: Sequence[int]) -> Any:
    """The other way round along dimensions."""
    return lax.rev(x, tuple({d % x.ndim for d in dims})) if x.ndim else x


@rule(aten.repeat.default)
def repeat(call: Call, x: Any, repeats: Sequence[int]) -> Any:
    """Several times along dimensions."""
    return jnp.tile(x, tuple(repeats))
