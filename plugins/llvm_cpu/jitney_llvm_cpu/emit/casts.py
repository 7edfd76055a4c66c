"""Conversions between dtypes, as torch does them on this platform.

A float that an integer cannot hold is undefined in C; here it never traps, and gives on x86 what the conversion
instruction gives, as torch does.
"""

from __future__ import annotations

import torch

from jitney_llvm_cpu.emit.builder import Function, Reg, literal, typed
from jitney_llvm_cpu.emit.dtypes import MEMORY, from_memory, rounded, to_memory
from jitney_llvm_cpu.emit.float8 import decoded, encoded
from jitney_lowering.ir import FLOAT8, FLOAT8_KINDS, HALVES


def cast(f: Function, value: Reg, source: torch.dtype, target: torch.dtype) -> Reg:
    """``value.to(target)``."""
    if source is target:
        return value
    if source in FLOAT8:
        return cast(f, decoded(f, value, FLOAT8_KINDS[source]), torch.float32, target)
    if target in FLOAT8:
        return encoded(f, cast(f, value, source, torch.float32), FLOAT8_KINDS[target])
    if target is torch.bool:
        return _truth(f, value)
    if target.is_floating_point:
        return _to_float(f, value, source, target)
    if source.is_floating_point:
        return _float_to_integer(f, value, target)
    return _resize(f, value, source, MEMORY[target])


def bitcast(f: Function, value: Reg, source: torch.dtype, target: torch.dtype) -> Reg:
    """The same bits; both dtypes have the same number."""
    bits = to_memory(f, value, source)
    return from_memory(f, f.convert("bitcast", bits, MEMORY[target]), target)


def _truth(f: Function, value: Reg) -> Reg:
    zero = literal(0, value.type)
    return f.compare("fcmp une" if value.type.floating else "icmp ne", value, zero)  # nan is true


def _to_float(f: Function, value: Reg, source: torch.dtype, target: torch.dtype) -> Reg:
    scalar = "double" if target is torch.float64 else "float"
    if source.is_floating_point:
        made = f.convert("fpext" if scalar == "double" else "fptrunc", value, scalar)
    elif source is torch.bool:
        type_ = typed(scalar, value.type.width)
        return f.select(value, literal(1, type_), literal(0, type_))
    else:
        made = f.convert("uitofp" if source is torch.uint8 else "sitofp", value, scalar)
    return rounded(f, made, target) if target in HALVES else made


def _float_to_integer(f: Function, value: Reg, target: torch.dtype) -> Reg:
    # Small integers go through int32, as in C.
    made = f.convert("fptosi", value, "i64" if target is torch.int64 else "i32")
    # Out of range is poison to LLVM, which could then do anything with what depends on it.
    made = f.value(made.type, f"freeze {made.type} {made}")
    return f.convert("trunc", made, MEMORY[target])


def _resize(f: Function, value: Reg, source: torch.dtype, scalar: str) -> Reg:
    bits = int(scalar[1:])
    if value.type.bits > bits:
        return f.convert("trunc", value, scalar)
    return f.convert("zext" if source in (torch.bool, torch.uint8) else "sext", value, scalar)
