"""Sizes of what is written into tensors and parts of them, which eager's kernels check and torch's stand-ins do not.

Symbolic sizes that must be equal are guarded to be. Of sizes that depend on data nothing is known: the operator tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney.torch_compat import torch_private

aten = torch.ops.aten


def _differ(one: Any, other: Any) -> bool:
    """Are these sizes known to be different?"""
    try:
        return bool(one != other)
    except torch_private.GuardOnDataDependentSymNode:
        return False


def _along(x: Any, dim: int, index: Any, source: Any, *rest: Any, **named: Any) -> None:
    """``index_add``: the source has the size of ``x``, but along the dimension."""
    if x.dim() and source.dim() == x.dim():
        dim = dim % x.dim()
        if any(d != dim and _differ(x.shape[d], source.shape[d]) for d in range(x.dim())):
            raise RuntimeError(
                "source tensor shape must match self tensor shape, excluding the specified dimension. "
                f"Got self.shape = {list(x.shape)} source.shape = {list(source.shape)}"
            )
        count = index.shape[0] if index.dim() else 1
        if index.dim() < 2 and _differ(count, source.shape[dim]):
            raise RuntimeError("index_add_(): Number of indices should be equal to source.size(dim)")


def _at(x: Any, indices: Sequence[Any], values: Any, *rest: Any, **named: Any) -> None:
    """``index_put``: the values can be broadcast to what the indices choose, unless truth values do."""
    if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices) or not values.dim():
        return
    chosen = aten.index.Tensor(x, indices).shape
    if values.dim() <= len(chosen):
        last = chosen[len(chosen) - values.dim() :]
        if any(_differ(one, 1) and _differ(one, n) for one, n in zip(values.shape, last, strict=True)):
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
                f"shape {list(chosen)}"
            )


def _of(part: Callable[..., Any]) -> Callable[..., None]:
    def check(x: Any, source: Any, *place: Any, **named: Any) -> None:
        wanted = part(x, *place, **named).shape
        if len(wanted) != source.dim() or any(map(_differ, wanted, source.shape)):
            raise RuntimeError(f"expected src to have a size equal to {list(wanted)}, but got {list(source.shape)}")

    return check


def check_room(x: Any, *others: Any, **named: Any) -> None:
    """Refuse what would broadcast the tensor that is written to: some of torch's stand-ins give it the larger size."""
    for other in (*others, *named.values()):
        if not isinstance(other, torch.Tensor):
            continue
        if other.dim() > x.dim() or any(type(n) is int and n == 1 and m != 1 for n, m in _last(x, other)):
            shape = torch.broadcast_shapes(x.shape, other.shape)
            raise RuntimeError(f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(shape)}")


def _last(x: Any, other: Any) -> list[tuple[Any, Any]]:
    return list(zip(x.shape[x.dim() - other.dim() :], other.shape, strict=True))


# Operator -> what raises eager's error for its arguments.
SOURCE_SIZES: dict[Any, Callable[..., None]] = {
    aten.index_add.default: _along,
    aten.index_add_.default: _along,
    aten.index_put.default: _at,
    aten.index_put_.default: _at,
    aten.select_scatter.default: _of(aten.select.int),
    aten.slice_scatter.default: _of(aten.slice.Tensor),
    aten.as_strided_scatter.default: _of(aten.as_strided.default),
}
