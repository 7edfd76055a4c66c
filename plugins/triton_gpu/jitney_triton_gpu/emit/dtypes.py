"""Triton's names for torch's dtypes, in memory and in registers."""

from __future__ import annotations

import math

import torch

from jitney_lowering.ir import FLOAT8, HALVES, float8_code

# In memory: as in a kernel's signature.
POINTERS: dict[torch.dtype, str] = {
    torch.bool: "i1",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    **dict.fromkeys(FLOAT8, "u8"),
}

NAMES: dict[torch.dtype, str] = {
    torch.bool: "tl.int1",
    torch.uint8: "tl.uint8",
    torch.int8: "tl.int8",
    torch.int16: "tl.int16",
    torch.int32: "tl.int32",
    torch.int64: "tl.int64",
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    **dict.fromkeys(FLOAT8, "tl.uint8"),
}


def register(dtype: torch.dtype) -> str:
    """In registers halves are float32, rounded after each operation as eager rounds; float8 is its code."""
    return "tl.float32" if dtype in HALVES else NAMES[dtype]


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A number of exactly this type, as a tensor without dimensions."""
    if dtype in FLOAT8:
        return f"tl.full([], {float8_code(value, dtype)}, tl.uint8)"
    if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:
        return f"(tl.full([], 0.0, {register(dtype)}) * -1.0)"  # Triton makes the positive zero of every zero
    if isinstance(value, float) and not math.isfinite(value):
        shown = f"float({str(value)!r})"
    else:
        shown = repr(value)
    return f"tl.full([], {shown}, {register(dtype)})"
