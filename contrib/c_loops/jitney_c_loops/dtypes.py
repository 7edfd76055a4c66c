"""How C holds elements: in variables, and in memory."""

from __future__ import annotations

import math

import torch

from jitney_lowering.ir import HALVES

# In variables. float16 and bfloat16 are float there, always with a value that the dtype holds.
VARIABLE: dict[torch.dtype, str] = {
    torch.bool: "uint8_t",
    torch.uint8: "uint8_t",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
    torch.float16: "float",
    torch.bfloat16: "float",
    torch.float32: "float",
    torch.float64: "double",
}
MEMORY = VARIABLE | dict.fromkeys(HALVES, "uint16_t")

# What many numbers are added up in: as exact as the sums that torch makes in pieces.
SUM = {torch.float16: "double", torch.bfloat16: "double", torch.float32: "double", torch.float64: "long double"}


def short(dtype: torch.dtype) -> str:
    """As in names of the prelude: ``float16``."""
    return str(dtype).removeprefix("torch.")


def from_memory(text: str, dtype: torch.dtype) -> str:
    """What is in memory, as a variable holds it."""
    if dtype is torch.bool:
        return f"({text} != 0)"
    return f"load_{short(dtype)}({text})" if dtype in HALVES else text


def to_memory(text: str, dtype: torch.dtype) -> str:
    """The other way round."""
    return f"store_{short(dtype)}({text})" if dtype in HALVES else text


def rounded(text: str, dtype: torch.dtype) -> str:
    """A float with the precision of ``dtype``, if that is a half type."""
    return f"round_{short(dtype)}({text})" if dtype in HALVES else text


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A number, exactly."""
    if not dtype.is_floating_point:
        number = int(value)
        return f"(-INT64_C({-number - 1}) - 1)" if number == -(2**63) else f"INT64_C({number})"
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{float(value).hex()}{'' if dtype is torch.float64 else 'f'}"
