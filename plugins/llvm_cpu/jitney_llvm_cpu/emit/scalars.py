"""The scalar operations: one short function per row of ``jitney_lowering.ir.operations.OPERATIONS``.

Each works on any width, in the dtype that the operands are held in; float16 and bfloat16 are float32 here, and
``apply`` rounds the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from jitney_llvm_cpu.emit import casts
from jitney_llvm_cpu.emit.builder import Function, Reg, literal, typed
from jitney_llvm_cpu.emit.dtypes import rounded
from jitney_llvm_cpu.target import Target
from jitney_lowering import philox
from jitney_lowering.ir import HALVES


class Callee(Protocol):
    """A vector function: its name, and the text that declares or defines it (empty if not)."""

    @property
    def symbol(self) -> str: ...  # noqa: D102
    @property
    def declaration(self) -> str: ...  # noqa: D102
    @property
    def definition(self) -> str: ...  # noqa: D102


class Math(Protocol):
    """Where vector functions come from."""

    def call(self, name: str, scalar: str, width: int) -> Callee:
        """The function over ``width`` lanes of ``scalar`` ("float" or "double"): a full vector of the target."""


@dataclass(frozen=True)
class Machine:
    """What operations need to know besides their operands."""

    target: Target
    math: Math

    def native(self, bits: int) -> int:
        """How many lanes of so many bits a vector of the machine has."""
        return self.target.lanes(bits // 8)

    def masks(self, bits: int) -> bool:
        """Has the machine masked loads and stores of elements of so many bits? If not, LLVM makes branches of them."""
        return self.target.has("avx512bw") or (bits >= 32 and self.target.has("avx"))


@dataclass(frozen=True, slots=True)
class Ops:
    """Where an operation is written to, and the dtype of its (first) operand as it is held."""

    f: Function
    machine: Machine
    dtype: torch.dtype

    @property
    def floating(self) -> bool:
        """Are the operands floats?"""
        return self.dtype.is_floating_point

    @property
    def unsigned(self) -> bool:
        """Do comparisons, divisions and shifts take the operands as unsigned?"""
        return self.dtype in (torch.uint8, torch.bool)


Emit = Callable[..., Reg]

# The result in float16 or bfloat16 is one of the operands, or their sign, or a whole number: nothing to round.
_EXACT = frozenset("neg abs maximum minimum where copysign floor ceil trunc round fmod".split())


def apply(
    f: Function, machine: Machine, op: str, args: Sequence[Reg], sources: Sequence[torch.dtype], result: torch.dtype
) -> Reg:
    """One operation.

    Args:
        f: where to write it.
        machine: for whom.
        op: a key of ``OPERATIONS``.
        args: operands as held in registers, all of the same width.
        sources: the operands' dtypes.
        result: the result's dtype.
    """
    if op == "cast":
        return casts.cast(f, args[0], sources[0], result)
    if op == "bitcast":
        return casts.bitcast(f, args[0], sources[0], result)
    held = sources[-1]
    made = ROWS[op](Ops(f, machine, torch.float32 if held in HALVES else held), *args)
    return rounded(f, made, result) if result in HALVES and op not in _EXACT else made


# Arithmetic


def _arithmetic(floating: str, integer: str) -> Emit:
    def emit(o: Ops, a: Reg, b: Reg) -> Reg:
        return o.f.binary(floating if o.floating else integer, a, b)

    return emit


def _neg(o: Ops, a: Reg) -> Reg:
    return o.f.unary("fneg", a) if o.floating else o.f.binary("sub", literal(0, a.type), a)


def _abs(o: Ops, a: Reg) -> Reg:
    if o.floating:
        return o.f.intrinsic("fabs", a)
    return a if o.unsigned else o.f.intrinsic("abs", a, extra=", i1 false")


def _extreme(sign: str) -> Emit:
    """``sign`` is gt or lt."""

    def emit(o: Ops, a: Reg, b: Reg) -> Reg:
        if o.dtype is torch.bool:
            return o.f.binary("or" if sign == "gt" else "and", a, b)
        if not o.floating:
            kind = "max" if sign == "gt" else "min"
            return o.f.intrinsic(("u" if o.unsigned else "s") + kind, a, b)
        # The first select is one instruction, and gives b if one is nan; the second lets a nan in a through.
        most = o.f.select(o.f.compare(f"fcmp o{sign}", a, b), a, b)
        return o.f.select(o.f.compare("fcmp uno", a, a), a, most)

    return emit


def _fma(o: Ops, a: Reg, b: Reg, c: Reg) -> Reg:
    if o.machine.target.has_fma:
        return o.f.intrinsic("fma", a, b, c)
    return o.f.binary("fadd", o.f.binary("fmul", a, b), c)


# Division


def _safe(o: Ops, b: Reg) -> tuple[Reg, Reg | None]:
    """A divisor that does not trap, and where it was -1 (None: nowhere): lanes past the end of a loop may hold a 0."""
    if b.known is not None:
        everywhere = literal(1, typed("i1", b.type.width))
        return (literal(1, b.type), everywhere) if b.known == -1 else (b, None)
    one = literal(1, b.type)
    nonzero = o.f.select(o.f.compare("icmp eq", b, literal(0, b.type)), one, b)
    if o.unsigned:
        return nonzero, None
    # The least integer divided by -1 overflows.
    minus = o.f.compare("icmp eq", b, literal(-1, b.type))
    return o.f.select(minus, one, nonzero), minus


def _integer_quotient(o: Ops, a: Reg, b: Reg, floor: bool) -> Reg:
    divisor, minus = _safe(o, b)
    if o.unsigned:
        return o.f.binary("udiv", a, divisor)
    if floor and b.known is not None and b.known > 0 and b.known & (b.known - 1) == 0:
        return o.f.binary("ashr", a, literal(b.known.bit_length() - 1, a.type))
    quotient = o.f.binary("sdiv", a, divisor)
    if floor:
        rest = o.f.binary("sub", a, o.f.binary("mul", quotient, divisor))
        quotient = o.f.binary("add", quotient, o.f.convert("sext", _wrong_sign(o, rest, divisor), a.type.scalar))
    if minus is None:
        return quotient
    return o.f.select(minus, o.f.binary("sub", literal(0, a.type), a), quotient)


def _wrong_sign(o: Ops, rest: Reg, divisor: Reg) -> Reg:
    """Is the remainder neither 0 nor of the divisor's sign?"""
    zero = literal(0, rest.type)
    differ = o.f.compare("icmp slt", o.f.binary("xor", rest, divisor), zero)
    return o.f.binary("and", differ, o.f.compare("icmp ne", rest, zero))


def _floordiv(o: Ops, a: Reg, b: Reg) -> Reg:
    return _integer_quotient(o, a, b, floor=True)


def _truncdiv(o: Ops, a: Reg, b: Reg) -> Reg:
    return _integer_quotient(o, a, b, floor=False)


def _remainder(o: Ops, a: Reg, b: Reg) -> Reg:
    if o.floating:
        return _float_remainder(o, a, b)
    divisor, _ = _safe(o, b)
    if o.unsigned:
        return o.f.binary("urem", a, divisor)
    if b.known is not None and b.known > 0 and b.known & (b.known - 1) == 0:
        return o.f.binary("and", a, literal(b.known - 1, a.type))
    rest = o.f.binary("srem", a, divisor)
    return o.f.select(_wrong_sign(o, rest, divisor), o.f.binary("add", rest, divisor), rest)


def _float_remainder(o: Ops, a: Reg, b: Reg) -> Reg:
    rest = _math(o, "fmod", a, b)
    zero = literal(0, a.type)
    differ = o.f.binary("xor", o.f.compare("fcmp olt", rest, zero), o.f.compare("fcmp olt", b, zero))
    wrong = o.f.binary("and", differ, o.f.compare("fcmp une", rest, zero))
    return o.f.select(wrong, o.f.binary("fadd", rest, b), rest)


def _fmod(o: Ops, a: Reg, b: Reg) -> Reg:
    if o.floating:
        return _math(o, "fmod", a, b)
    divisor, _ = _safe(o, b)
    return o.f.binary("urem" if o.unsigned else "srem", a, divisor)


# Comparisons, bits, choices


def _compare(floating: str, integer: str) -> Emit:
    """``integer`` is a predicate; those with an order get their sign here."""

    def emit(o: Ops, a: Reg, b: Reg) -> Reg:
        if o.floating:
            return o.f.compare(f"fcmp {floating}", a, b)
        sign = "" if integer in ("eq", "ne") else "u" if o.unsigned else "s"
        return o.f.compare(f"icmp {sign}{integer}", a, b)

    return emit


def _isnan(o: Ops, a: Reg) -> Reg:
    return o.f.compare("fcmp uno", a, a)


def _bitwise(opcode: str) -> Emit:
    return lambda o, a, b: o.f.binary(opcode, a, b)


def _not(o: Ops, a: Reg) -> Reg:
    return o.f.binary("xor", a, literal(1 if o.dtype is torch.bool else -1, a.type))


def _shift_left(o: Ops, a: Reg, b: Reg) -> Reg:
    bits = literal(a.type.bits, a.type)
    fits = o.f.compare("icmp ult", b, bits)  # a negative shift is too far as well
    zero = literal(0, a.type)
    return o.f.select(fits, o.f.binary("shl", a, o.f.select(fits, b, zero)), zero)


def _shift_right(o: Ops, a: Reg, b: Reg) -> Reg:
    bits = literal(a.type.bits, a.type)
    fits = o.f.compare("icmp ult", b, bits)
    if o.unsigned:
        zero = literal(0, a.type)
        return o.f.select(fits, o.f.binary("lshr", a, o.f.select(fits, b, zero)), zero)
    return o.f.binary("ashr", a, o.f.select(fits, b, literal(a.type.bits - 1, a.type)))


def _where(o: Ops, condition: Reg, a: Reg, b: Reg) -> Reg:
    return o.f.select(condition, a, b)


def _sign_bit(o: Ops, a: Reg) -> Reg:
    bits = o.f.convert("bitcast", a, f"i{a.type.bits}")
    return o.f.compare("icmp slt", bits, literal(0, bits.type))


# Rounding, roots, functions


def _intrinsic(name: str) -> Emit:
    return lambda o, *args: o.f.intrinsic(name, *args)


def _rsqrt(o: Ops, a: Reg) -> Reg:
    return o.f.binary("fdiv", literal(1, a.type), o.f.intrinsic("sqrt", a))


def _next_after(o: Ops, a: Reg, b: Reg) -> Reg:
    f = o.f
    bits, towards = (f.convert("bitcast", x, f"i{x.type.bits}") for x in (a, b))
    type_ = bits.type
    # Away from zero the bits, read as an integer, grow; below zero they grow downwards.
    up = f.compare("fcmp olt", a, b)
    negative = f.compare("icmp slt", bits, literal(0, type_))
    step = f.select(f.binary("xor", up, negative), literal(1, type_), literal(-1, type_))
    moved = f.binary("add", bits, step)
    sign = f.binary("and", towards, literal(-(1 << (type_.bits - 1)), type_))
    smallest = f.binary("or", sign, literal(1, type_))
    moved = f.select(f.compare("fcmp oeq", a, literal(0, a.type)), smallest, moved)
    moved = f.select(f.compare("fcmp oeq", a, b), towards, moved)
    nan = f.compare("fcmp uno", a, b)
    return f.select(nan, f.binary("fadd", a, b), f.convert("bitcast", moved, a.type.scalar))


def _function(name: str) -> Emit:
    return lambda o, *args: _math(o, name, *args)


def _math(o: Ops, name: str, *args: Reg) -> Reg:
    """A vector function, which exists for full vectors only: narrower operands are padded, wider ones cut."""
    type_ = args[0].type
    native = o.machine.native(type_.bits)
    if type_.width == native:
        return _call(o, name, args)
    if type_.width < native:
        padded = [o.f.splat(a, native) if a.type.width == 1 else _widened(o, a, native) for a in args]
        made = _call(o, name, padded)
        return o.f.extract(made, 0) if type_.width == 1 else o.f.shuffle(made, None, range(type_.width))
    pieces = [
        _call(o, name, [o.f.shuffle(a, None, range(start, start + native)) for a in args])
        for start in range(0, type_.width, native)
    ]
    while len(pieces) > 1:
        width = pieces[0].type.width
        pieces = [o.f.shuffle(a, b, range(2 * width)) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]


def _widened(o: Ops, a: Reg, width: int) -> Reg:
    return o.f.shuffle(a, None, [i % a.type.width for i in range(width)])


def _call(o: Ops, name: str, args: Sequence[Reg]) -> Reg:
    type_ = args[0].type
    callee = o.machine.math.call(name, type_.scalar, type_.width)
    o.f.module.include(callee.declaration)
    o.f.module.include(callee.definition)
    return o.f.invoke(callee.symbol, type_, args)


def _uniform(o: Ops, seed: Reg, counter: Reg) -> Reg:
    """Philox; see ``jitney_lowering.philox``. Products of 32 bits each, in lanes of 64."""

    def number(value: int) -> Reg:
        return literal(value, counter.type)

    def low(a: Reg) -> Reg:
        return o.f.binary("and", a, number(philox.WORD))

    def high(a: Reg) -> Reg:
        return o.f.binary("lshr", a, number(32))

    def mixed(a: Reg, b: Reg, c: Reg) -> Reg:
        return o.f.binary("xor", o.f.binary("xor", a, b), c)

    keys = [low(seed), high(seed)]
    c = [low(counter), high(counter), number(0), number(0)]
    for n in range(philox.ROUNDS):
        if n:
            keys = [low(o.f.binary("add", k, number(step))) for k, step in zip(keys, philox.STEPS, strict=True)]
        first, second = (o.f.binary("mul", c[2 * i], number(m)) for i, m in enumerate(philox.MULTIPLIERS))
        c = [mixed(high(second), c[1], keys[0]), low(second), mixed(high(first), c[3], keys[1]), low(first)]
    bits = o.f.convert("trunc", o.f.binary("lshr", c[0], number(32 - philox.BITS)), "i32")
    made = o.f.convert("sitofp", bits, "float")
    return o.f.binary("fmul", made, literal(2.0**-philox.BITS, made.type))


_FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma "
    "pow atan2 hypot"
)

ROWS: dict[str, Emit] = {
    "add": _arithmetic("fadd", "add"),
    "sub": _arithmetic("fsub", "sub"),
    "mul": _arithmetic("fmul", "mul"),
    "div": _arithmetic("fdiv", ""),
    "floordiv": _floordiv,
    "truncdiv": _truncdiv,
    "remainder": _remainder,
    "fmod": _fmod,
    "neg": _neg,
    "abs": _abs,
    "maximum": _extreme("gt"),
    "minimum": _extreme("lt"),
    "fma": _fma,
    "eq": _compare("oeq", "eq"),
    "ne": _compare("une", "ne"),
    "lt": _compare("olt", "lt"),
    "le": _compare("ole", "le"),
    "gt": _compare("ogt", "gt"),
    "ge": _compare("oge", "ge"),
    "isnan": _isnan,
    "and": _bitwise("and"),
    "or": _bitwise("or"),
    "xor": _bitwise("xor"),
    "not": _not,
    "shl": _shift_left,
    "shr": _shift_right,
    "where": _where,
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "trunc": _intrinsic("trunc"),
    "round": _intrinsic("roundeven"),
    "sqrt": _intrinsic("sqrt"),
    "rsqrt": _rsqrt,
    "signbit": _sign_bit,
    "copysign": _intrinsic("copysign"),
    "nextafter": _next_after,
    "uniform": _uniform,
    **{name: _function(name) for name in _FUNCTIONS.split()},
}
