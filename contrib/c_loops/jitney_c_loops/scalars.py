"""The scalar operations of ``jitney_lowering.ir.OPERATIONS`` in C.

A row gives the text for operands that are names of variables. It is assigned to a variable of the result's type, which
makes integers wrap around; results of half types are rounded by ``applied``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from jitney_c_loops.dtypes import VARIABLE, from_memory, rounded, to_memory
from jitney_lowering.ir import HALVES, Apply

Spelling = Callable[..., str]  # (the operands' dtype, operands...) -> text


def _infix(symbol: str) -> Spelling:
    return lambda dtype, a, b: f"{a} {symbol} {b}"


def _helper(name: str) -> Spelling:
    return lambda dtype, *args: f"{name}({', '.join(args)})"


def _math(name: str) -> Spelling:
    """A function of math.h, for float or for double."""
    return lambda dtype, *args: f"{name}{'' if dtype is torch.float64 else 'f'}({', '.join(args)})"


def _typed(name: str) -> Spelling:
    """A function of the prelude, for float or for double."""
    return lambda dtype, *args: f"{name}_{VARIABLE[dtype]}({', '.join(args)})"


def _by_kind(floating: Spelling, integer: Spelling) -> Spelling:
    return lambda dtype, *args: (floating if dtype.is_floating_point else integer)(dtype, *args)


def _shift(name: str) -> Spelling:
    def spelled(dtype: torch.dtype, a: str, b: str) -> str:
        unsigned = "_unsigned" if name == "shift_right" and dtype is torch.uint8 else ""
        return f"{name}{unsigned}({a}, {b}, {dtype.itemsize * 8})"

    return spelled


def _cast(a: str, source: torch.dtype, result: torch.dtype) -> str:
    """As C++ converts: floats to integers towards zero, to small ones by way of int32."""
    if result is torch.bool:
        return f"{a} != 0"
    if source.is_floating_point and result in (torch.uint8, torch.int8, torch.int16):
        return f"(int32_t){a}"
    return rounded(f"(float){a}", result) if result in HALVES and result is not source else f"({VARIABLE[result]}){a}"


def _bitcast(a: str, source: torch.dtype, result: torch.dtype) -> str:
    pair = {
        (torch.float32, torch.int32): "bits_of_float",
        (torch.int32, torch.float32): "float_of_bits",
        (torch.float64, torch.int64): "bits_of_double",
        (torch.int64, torch.float64): "double_of_bits",
    }.get((source, result))
    if pair is not None:
        return f"{pair}({a})"
    bits = to_memory(a, source)
    return from_memory(f"(uint16_t){bits}" if result in HALVES else bits, result)


def applied(v: Apply, operands: Sequence[str]) -> str:
    """The text of an operation on variables."""
    source = v.args[-1].dtype
    if v.op == "cast":
        return _cast(operands[0], source, v.dtype)
    if v.op == "bitcast":
        return _bitcast(operands[0], source, v.dtype)
    text = SPELLINGS[v.op](source, *operands)
    return text if v.op == "where" else rounded(text, v.dtype)


SPELLINGS: dict[str, Spelling] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": _infix("/"),
    "floordiv": _helper("floordiv_int"),
    "truncdiv": _helper("truncdiv_int"),
    "remainder": _by_kind(_typed("remainder"), _helper("mod_int")),
    "fmod": _by_kind(_math("fmod"), _helper("fmod_int")),
    "neg": lambda dtype, a: f"-{a}",
    "abs": _by_kind(_math("fabs"), lambda dtype, a: f"{a} < 0 ? -{a} : {a}"),
    "maximum": _by_kind(_typed("maximum"), _helper("max_int")),
    "minimum": _by_kind(_typed("minimum"), _helper("min_int")),
    "eq": _infix("=="),
    "ne": _infix("!="),
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    "isnan": lambda dtype, a: f"{a} != {a}",
    "and": _infix("&"),
    "or": _infix("|"),
    "xor": _infix("^"),
    "not": lambda dtype, a: f"!{a}" if dtype is torch.bool else f"~{a}",
    "shl": _shift("shift_left"),
    "shr": _shift("shift_right"),
    "where": lambda dtype, condition, a, b: f"{condition} ? {a} : {b}",
    "round": _math("rint"),
    "rsqrt": lambda dtype, a: f"1 / {_math('sqrt')(dtype, a)}",
    "signbit": lambda dtype, a: f"signbit({a}) != 0",
    "uniform": _helper("uniform"),
    **{
        name: _math(name)
        for name in (
            "floor", "ceil", "trunc", "sqrt", "copysign", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
            "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
            "erfc", "lgamma", "pow", "atan2", "hypot", "nextafter", "fma",
        )
    },
}  # fmt: skip
