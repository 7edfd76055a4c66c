"""torch's type promotion: which dtype operands are converted to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from jitney_lowering.aten.tensor import Float, Tensor
from jitney_lowering.index import Index
from jitney_lowering.ir.operations import HALVES


def opmath(dtype: torch.dtype) -> torch.dtype:
    """What eager's kernels compute in."""
    return torch.float32 if dtype in HALVES else dtype


def promoted(operands: Iterable[Any]) -> torch.dtype:
    """The common dtype of tensors and numbers; tensors with dimensions outweigh those without, and these numbers."""
    found: list[torch.dtype | None] = [None, None, None]  # of tensors with dimensions, of those without, of numbers
    for operand in operands:
        dtype = _dtype(operand)
        if dtype is None:
            continue
        rank = 2 if not isinstance(operand, Tensor) or isinstance(operand, Float) else 0 if operand.size else 1
        before = found[rank]
        found[rank] = dtype if before is None else torch.promote_types(before, dtype)
    result: torch.dtype | None = None
    for dtype in found:
        if dtype is None:
            continue
        if result is None:
            result = dtype
        elif _category(dtype) > _category(result):
            result = torch.promote_types(result, dtype)
    assert result is not None
    return result


def _dtype(operand: Any) -> torch.dtype | None:
    if isinstance(operand, (float, Float)):
        return torch.get_default_dtype()
    if isinstance(operand, Tensor):
        return operand.dtype
    if isinstance(operand, complex):
        return torch.get_default_dtype().to_complex()
    if isinstance(operand, bool):
        return torch.bool
    if isinstance(operand, (int, Index)):
        return torch.int64
    return None


def _category(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1
