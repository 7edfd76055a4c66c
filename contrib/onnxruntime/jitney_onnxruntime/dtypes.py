"""Dtypes as ONNX numbers them, and those in which operators compute."""

from __future__ import annotations

import torch

# ``TensorProto.DataType``. A dtype that is not here is one that no node may have.
ELEMENT: dict[torch.dtype, int] = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 11,
    torch.bfloat16: 16,
}
HALF = frozenset({torch.float16, torch.bfloat16})
FULL = frozenset({torch.float32, torch.float64})
FLOATS = HALF | FULL
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


def computing(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which an operator on this one computes, as eager's kernels do: float32 for half types."""
    return torch.float32 if dtype in HALF else dtype
