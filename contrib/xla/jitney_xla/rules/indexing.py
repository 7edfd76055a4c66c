"""Looking up by index. XLA clamps an index that is out of range; eager raises, so each index is a condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from torch import fx

from jitney_xla.rules.call import Call, fake, rule

aten = torch.ops.aten


def counted(call: Call, index: Any, size: int, negative: bool) -> Any:
    """The index from the front; out of range is not eager's result."""
    index = index.astype(jnp.int64)
    call.conditions.append((index >= (-size if negative else 0)) & (index < size))
    return jnp.where(index < 0, index + size, index) if negative else index


@rule(aten.embedding.default)
def embedding(call: Call, weight: Any, indices: Any, *rest: Any, **kwargs: Any) -> Any:
    """Rows of a table."""
    return jnp.take(weight, counted(call, indices, weight.shape[0], False), axis=0, mode="clip")


def _by_frequency(node: fx.Node) -> bool:
    return len(node.args) < 5 or not node.args[4]


@rule(aten.embedding_dense_backward.default, only=_by_frequency)
def embedding_backward(call: Call, grad: Any, indices: Any, rows: int, padding: int, by_frequency: bool = False) -> Any:
    """What each row of the table gets."""
    places = counted(call, indices, rows, False).reshape(-1)
    flat = grad.reshape(-1, grad.shape[-1]).astype(call.computes)
    flat = jnp.where((places == padding)[:, None], 0, flat)
    made = jnp.zeros((rows, grad.shape[-1]), call.computes)
    return call.made(made.at[places].add(flat, mode="clip"))


@rule(aten.index_select.default, only=lambda node: fake(node.args[0]).dim() > 0)
def index_select(call: Call, x: Any, dim: int, index: Any) -> Any:
    """Places along a dimension."""
    axis = dim % x.ndim
    return jnp.take(x, counted(call, index.reshape(-1), x.shape[axis], False), axis=axis, mode="clip")


@rule(aten.gather.default, only=lambda node: fake(node.args[0]).dim() > 0 and fake(node.args[2]).dim() > 0)
def gather(call: Call, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """One place along a dimension for each result; other dimensions may be shorter than those of ``x``."""
    axis = dim % x.ndim
    places = counted(call, index, x.shape[axis], False)
    cut = tuple(slice(None) if d == axis else slice(0, n) for d, n in enumerate(index.shape))
    return jnp.take_along_axis(x[cut], places, axis=axis, mode="clip")


def _by_integers(node: fx.Node) -> bool:
    return all(i is None or fake(i).dtype in (torch.int64, torch.int32) for i in node.args[1])  # type: ignore[union-attr]


@rule(aten.index.Tensor, only=_by_integers)
def index(call: Call, x: Any, indices: Sequence[Any]) -> Any:
    """Integers in place of some dimensions."""
    places = _places(call, x, indices)
    return x.at[places].get(mode="clip")


def _places(call: Call, x: Any, indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else counted(call, i, x.shape[d], True) for d, i in enumerate(indices))


def _accumulates(node: fx.Node) -> bool:
    """Where two values go to one place, which of them stays is nobody's promise; their sum is."""
    return len(node.args) > 3 and node.args[3] is True and _by_integers(node) and node.meta["val"].is_floating_point()


@rule(aten.index_put.default, aten._unsafe_index_put.default, only=_accumulates)
def index_put(call: Call, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """``x`` plus values at places."""
    places = _places(call, x, indices)
    made = x.astype(call.computes).at[places].add(values.astype(call.computes), mode="clip")
    return call.made(made)
