"""How elements are held: in memory, and in registers.

float16 and bfloat16 are float32 in registers, always with a value that the dtype holds; bool is i1 there and a byte of
0 or 1 in memory.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from jitney_llvm_cpu.emit.text import Function, Reg, literal, typed

HALVES = frozenset({torch.float16, torch.bfloat16})

REGISTER: dict[torch.dtype, str] = {
    torch.bool: "i1",
    torch.uint8: "i8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "float",
    torch.bfloat16: "float",
    torch.float32: "float",
    torch.float64: "double",
}
MEMORY: dict[torch.dtype, str] = REGISTER | {torch.bool: "i8", torch.float16: "half", torch.bfloat16: "i16"}


def constant(value: bool | int | float, dtype: torch.dtype, width: int) -> Reg:
    """A number of this dtype in ``width`` lanes."""
    return literal(value, typed(REGISTER[dtype], width))


def to_memory(f: Function, value: Reg, dtype: torch.dtype) -> Reg:
    """From register to memory."""
    row = _TO_MEMORY.get(dtype)
    return row(f, value) if row else value


def from_memory(f: Function, value: Reg, dtype: torch.dtype) -> Reg:
    """From memory to register."""
    row = _FROM_MEMORY.get(dtype)
    return row(f, value) if row else value


def rounded(f: Function, value: Reg, dtype: torch.dtype) -> Reg:
    """A float32 rounded to what float16 or bfloat16 holds, to nearest even, still as float32."""
    if dtype is torch.float16:
        return f.convert("fpext", f.convert("fptrunc", value, "half"), "float")
    width = value.type.width
    i32 = typed("i32", width)
    bits = f.convert("bitcast", value, "i32")
    odd = f.binary("and", f.binary("lshr", bits, literal(16, i32)), literal(1, i32))
    up = f.binary("add", f.binary("add", bits, literal(0x7FFF, i32)), odd)
    # A nan's bits could carry over into infinity or into the other sign: it is made quiet instead.
    quiet = f.binary("or", bits, literal(0x400000, i32))
    chosen = f.select(f.compare("fcmp uno", value, value), quiet, up)
    return f.convert("bitcast", f.binary("and", chosen, literal(-0x10000, i32)), "float")


def _bool_to_byte(f: Function, value: Reg) -> Reg:
    return f.convert("zext", value, "i8")


def _bool_from_byte(f: Function, value: Reg) -> Reg:
    return f.compare("icmp ne", value, literal(0, value.type))


def _bfloat_to_memory(f: Function, value: Reg) -> Reg:
    bits = f.convert("bitcast", value, "i32")
    return f.convert("trunc", f.binary("lshr", bits, literal(16, bits.type)), "i16")


def _bfloat_from_memory(f: Function, value: Reg) -> Reg:
    bits = f.convert("zext", value, "i32")
    return f.convert("bitcast", f.binary("shl", bits, literal(16, bits.type)), "float")


def _half_to_memory(f: Function, value: Reg) -> Reg:
    return f.convert("fptrunc", value, "half")


def _half_from_memory(f: Function, value: Reg) -> Reg:
    return f.convert("fpext", value, "float")


_TO_MEMORY: dict[torch.dtype, Callable[[Function, Reg], Reg]] = {
    torch.bool: _bool_to_byte,
    torch.bfloat16: _bfloat_to_memory,
    torch.float16: _half_to_memory,
}
_FROM_MEMORY: dict[torch.dtype, Callable[[Function, Reg], Reg]] = {
    torch.bool: _bool_from_byte,
    torch.bfloat16: _bfloat_from_memory,
    torch.float16: _half_from_memory,
}
