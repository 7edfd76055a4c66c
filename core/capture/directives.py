"""What a program says to capture, or asks of it. Outside compiled code these do nothing, or mark tensors."""

from __future__ import annotations

from typing import Any

import torch


def graph_break() -> None:
    """End the graph here; nothing outside compiled code."""


def is_compiling() -> bool:
    """True inside code that is being captured, False outside."""
    return False


def is_dynamo_compiling() -> bool:
    """The same as ``is_compiling``, by torch's name."""
    return False


def mark_dynamic(tensor: torch.Tensor, index: int | tuple[int, ...] | list[int]) -> None:
    """Make a size of this tensor symbolic from the first compile on."""
    _mark(tensor, "_jitney_dynamic", index)


def mark_static(tensor: torch.Tensor, index: int | tuple[int, ...] | list[int] | None = None) -> None:
    """Keep a size (or all) of this tensor constant even if it changes."""
    _mark(tensor, "_jitney_static", range(tensor.dim()) if index is None else index)


def _mark(tensor: torch.Tensor, field: str, index: Any) -> None:
    wanted = [index] if isinstance(index, int) else list(index)
    for i in wanted:
        if not -tensor.dim() <= i < tensor.dim():
            raise IndexError(f"dimension {i} of a tensor with {tensor.dim()} dimensions")
    setattr(tensor, field, getattr(tensor, field, frozenset()) | {i % tensor.dim() for i in wanted})
