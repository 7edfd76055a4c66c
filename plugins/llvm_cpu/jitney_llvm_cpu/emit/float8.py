"""Codes of 8 bits from float32 and back, by integer arithmetic."""

from __future__ import annotations

from jitney_llvm_cpu.emit.builder import Function, Reg, literal
from jitney_lowering.ir import Float8

INFINITY = 255 << 23  # the bits of a float32


def decoded(f: Function, code: Reg, kind: Float8) -> Reg:
    """The float32 that a code (i8) stands for."""
    bits = f.convert("zext", code, "i32")
    i32 = bits.type
    size = f.binary("and", bits, literal(0x7F, i32))
    moved = f.binary("shl", size, literal(kind.shift, i32))
    normal = f.binary("add", moved, literal((127 - kind.bias) << 23, i32))
    small = f.convert("sitofp", size, "float")
    small = f.convert("bitcast", f.binary("fmul", small, literal(kind.quantum, small.type)), "i32")
    value = f.select(f.compare("icmp ult", size, literal(1 << kind.mantissa, i32)), small, normal)
    if kind.infinity:
        beyond = f.binary("or", moved, literal(INFINITY, i32))
        value = f.select(f.compare("icmp uge", size, literal(kind.infinity, i32)), beyond, value)
    else:
        is_nan = f.compare("icmp eq", bits if kind.unsigned else size, literal(kind.nan, i32))
        value = f.select(is_nan, literal(INFINITY | 1 << 22, i32), value)
    sign = f.binary("shl", f.binary("and", bits, literal(0x80, i32)), literal(24, i32))
    return f.convert("bitcast", f.binary("or", value, sign), "float")


def encoded(f: Function, value: Reg, kind: Float8) -> Reg:
    """The code (i8) of a float32, rounded to nearest even."""
    bits = f.convert("bitcast", value, "i32")
    i32 = bits.type
    size = f.binary("and", bits, literal((1 << 31) - 1, i32))
    odd = f.binary("and", f.binary("lshr", size, literal(kind.shift, i32)), literal(1, i32))
    normal = f.binary("add", f.binary("add", size, literal(kind.rounding, i32)), odd)
    normal = f.binary("lshr", normal, literal(kind.shift, i32))
    # After the addition the last bit of the float32 is worth the last bit of the code.
    magic = literal(kind.magic, i32)
    raised = f.binary("fadd", f.convert("bitcast", size, "float"), f.convert("bitcast", magic, "float"))
    small = f.binary("sub", f.convert("bitcast", raised, "i32"), magic)
    code = f.select(f.compare("icmp ult", size, literal(kind.least_normal, i32)), small, normal)
    most, nan = literal(kind.most, i32), literal(kind.nan, i32)
    code = f.select(f.compare("icmp ugt", code, most), nan if kind.overflows else most, code)
    code = f.select(f.compare("icmp ugt", size, literal(INFINITY, i32)), nan, code)
    sign = f.binary("and", f.binary("lshr", bits, literal(24, i32)), literal(0x80, i32))
    if kind.unsigned:
        zero = literal(0, i32)
        sign = f.select(f.compare("icmp eq", code, zero), zero, sign)
    return f.convert("trunc", f.binary("or", code, sign), "i8")
