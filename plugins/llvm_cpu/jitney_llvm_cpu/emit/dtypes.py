"""How elements are held: in memory, and in registers.

float16 and bfloat16 are float32 in registers, always with a value that the dtype holds; bool is i1 there and a byte of
0 or 1 in memory; float8 is its code.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from jitney_llvm_cpu.emit.builder import Function, Reg, Type, literal, typed
from jitney_lowering.ir import FLOAT8, float8_code

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
    **dict.fromkeys(FLOAT8, "i8"),
}
MEMORY: dict[torch.dtype, str] = REGISTER | {torch.bool: "i8", torch.float16: "half", torch.bfloat16: "i16"}


def constant(value: bool | int | float, dtype: torch.dtype, width: int) -> Reg:
    """A number of this dtype in ``width`` lanes."""
    if dtype in FLOAT8:
        value = float8_code(value, dtype)
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
        return _half_from_memory(f, _half_to_memory(f, value))
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
    if f.module.converts_halves:
        return f.convert("fptrunc", value, "half")
    bits = f.convert("bitcast", value, "i32")
    i32 = bits.type
    sign = f.binary("and", bits, literal(-(1 << 31), i32))
    size = f.binary("xor", bits, sign)
    # What float16 holds as a normal number: another bias of the exponent, and 13 bits less, rounded to nearest even.
    odd = f.binary("and", f.binary("lshr", size, literal(13, i32)), literal(1, i32))
    normal = f.binary("add", f.binary("add", size, literal(((15 - 127) << 23) + 0xFFF, i32)), odd)
    normal = f.binary("lshr", normal, literal(13, i32))
    # Below, an addition rounds: after it, the last bit of the float32 is worth the last bit of a denormal float16.
    magic = ((127 - 15) + (23 - 10) + 1) << 23
    raised = f.binary("fadd", f.convert("bitcast", size, "float"), _float_of_bits(f, magic, i32))
    small = f.binary("sub", f.convert("bitcast", raised, "i32"), literal(magic, i32))
    beyond = f.select(f.compare("icmp ugt", size, literal(255 << 23, i32)), literal(0x7E00, i32), literal(0x7C00, i32))
    found = f.select(f.compare("icmp ult", size, literal(113 << 23, i32)), small, normal)
    found = f.select(f.compare("icmp ult", size, literal((127 + 16) << 23, i32)), found, beyond)
    found = f.binary("or", found, f.binary("lshr", sign, literal(16, i32)))
    return f.convert("bitcast", f.convert("trunc", found, "i16"), "half")


def _half_from_memory(f: Function, value: Reg) -> Reg:
    if f.module.converts_halves:
        return f.convert("fpext", value, "float")
    bits = f.convert("zext", f.convert("bitcast", value, "i16"), "i32")
    i32 = bits.type
    size = f.binary("and", bits, literal(0x7FFF, i32))
    moved = f.binary("shl", size, literal(13, i32))
    # The exponents' biases differ by 112; a multiplication makes normal numbers of denormal ones as well.
    scaled = f.binary("fmul", f.convert("bitcast", moved, "float"), _float_of_bits(f, (127 + 112) << 23, i32))
    beyond = f.compare("icmp uge", size, literal(0x7C00, i32))
    found = f.convert("bitcast", scaled, "i32")
    found = f.select(beyond, f.binary("or", moved, literal(255 << 23, i32)), found)
    sign = f.binary("shl", f.binary("and", bits, literal(0x8000, i32)), literal(16, i32))
    return f.convert("bitcast", f.binary("or", found, sign), "float")


def _float_of_bits(f: Function, bits: int, i32: Type) -> Reg:
    return f.convert("bitcast", literal(bits, i32), "float")


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
