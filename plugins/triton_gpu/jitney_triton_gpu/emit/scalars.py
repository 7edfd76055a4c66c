"""The scalar operations of ``lowering.operations.OPERATIONS`` in Triton.

A row says how an operation is spelled for operands that are texts of registers. Operands of half types are in float32
registers; the result is rounded by the caller. What torch computes with CUDA's math library is computed with the same
functions here (``libdevice``), so the numbers are eager's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from jitney_lowering.ir import FLOAT8, FLOAT8_KINDS, HALVES
from jitney_triton_gpu.device import INTERPRETED
from jitney_triton_gpu.emit.dtypes import NAMES, register

Spelling = Callable[..., str]  # (the operands' dtype, the result's dtype, operands...) -> text

SMALL = frozenset({torch.uint8, torch.int8, torch.int16})


def _infix(symbol: str) -> Spelling:
    return lambda dtype, result, a, b: f"{a} {symbol} {b}"


def _library(name: str) -> Spelling:
    return lambda dtype, result, *args: f"libdevice.{name}({', '.join(args)})"


def _helper(name: str) -> Spelling:
    return lambda dtype, result, *args: f"helpers.{name}({', '.join(args)})"


def _triton(name: str) -> Spelling:
    return lambda dtype, result, *args: f"tl.{name}({', '.join(args)})"


def _by_kind(floating: Spelling, integer: Spelling) -> Spelling:
    return lambda dtype, result, *args: (floating if dtype.is_floating_point else integer)(dtype, result, *args)


def _division(dtype: torch.dtype, result: torch.dtype, a: str, b: str) -> str:
    return f"{a} / {b}" if dtype is torch.float64 else f"tl.div_rn({a}, {b})"


def _root(dtype: torch.dtype, result: torch.dtype, a: str) -> str:
    return f"tl.sqrt({a})" if dtype is torch.float64 else f"tl.sqrt_rn({a})"


def _extreme(name: str) -> Spelling:
    def spelled(dtype: torch.dtype, result: torch.dtype, a: str, b: str) -> str:
        if dtype is torch.bool:
            return f"{a} {'|' if name == 'maximum' else '&'} {b}"
        return f"helpers.{name}_nan({a}, {b})" if dtype.is_floating_point else f"tl.{name}({a}, {b})"

    return spelled


def _order(symbol: str) -> Spelling:
    def spelled(dtype: torch.dtype, result: torch.dtype, a: str, b: str) -> str:
        if dtype is torch.bool:
            return f"{a}.to(tl.int8) {symbol} {b}.to(tl.int8)"
        return f"{a} {symbol} {b}"

    return spelled


def _not(dtype: torch.dtype, result: torch.dtype, a: str) -> str:
    return f"{a} == 0" if dtype is torch.bool else f"~{a}"


def _shift(name: str) -> Spelling:
    def spelled(dtype: torch.dtype, result: torch.dtype, a: str, b: str) -> str:
        helper = f"{name}_unsigned" if dtype is torch.uint8 and name == "shift_right" else name
        return f"helpers.{helper}({a}, {b}, {dtype.itemsize * 8})"

    return spelled


def cast(dtype: torch.dtype, result: torch.dtype, a: str) -> str:
    """A conversion as C++ does it: floats to integers towards zero, floats to halves through float32."""
    if dtype is result:
        return a
    if dtype in FLOAT8:
        return cast(torch.float32, result, f"helpers.decoded({a}, {_format(dtype)})")
    if result in FLOAT8:
        return f"helpers.encoded({cast(dtype, torch.float32, a)}, {_format(result)})"
    if result is torch.bool:
        return a if dtype is torch.bool else f"({a} != 0)"
    if dtype in HALVES and result is torch.float32:
        return a
    if dtype in SMALL and (result is torch.float32 or (result in HALVES and dtype.itemsize == 1)):
        return f"helpers.number({a})"  # halves have it, too
    if result in HALVES:
        return rounded(a if dtype in HALVES or dtype is torch.float32 else f"{a}.to(tl.float32)", result)
    if dtype.is_floating_point and result in SMALL:
        return f"{a}.to(tl.int32).to({NAMES[result]})"
    return f"{a}.to({register(result)})"


def _format(dtype: torch.dtype) -> str:
    """What the helpers are told of a float8 dtype."""
    kind = FLOAT8_KINDS[dtype]
    return f"{kind.mantissa}, {kind.bias}, {kind.most}, {kind.infinity}, {kind.overflows}, {kind.unsigned}"


def rounded(text: str, dtype: torch.dtype) -> str:
    """A float32 register with the precision of a half type."""
    return f"({text}).to({NAMES[dtype]}).to(tl.float32)"


def _bitcast(dtype: torch.dtype, result: torch.dtype, a: str) -> str:
    source = f"{a}.to({NAMES[dtype]})" if dtype in HALVES else a
    if torch.bool in (dtype, result):
        return cast(dtype, result, a)
    made = f"{source}.to({NAMES[result]}, bitcast=True)"
    return f"{made}.to(tl.float32)" if result in HALVES else made


SPELLINGS: dict[str, Spelling] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": _division,
    "floordiv": _helper("floordiv_int"),
    "truncdiv": _infix("//"),
    "remainder": _by_kind(_helper("remainder_float"), _helper("mod_int")),
    "fmod": _by_kind(_library("fmod"), _infix("%")),
    # Triton's own minus subtracts from 0, which makes 0 of a 0 that should become -0.
    "neg": _by_kind(lambda dtype, result, a: f"({a} * -1.0)", lambda dtype, result, a: f"-{a}"),
    "abs": lambda dtype, result, a: a if dtype is torch.uint8 else f"tl.abs({a})",
    "maximum": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "fma": _triton("fma"),
    "eq": _order("=="),
    "ne": _order("!="),
    "lt": _order("<"),
    "le": _order("<="),
    "gt": _order(">"),
    "ge": _order(">="),
    "isnan": lambda dtype, result, a: f"{a} != {a}",
    "and": _infix("&"),
    "or": _infix("|"),
    "xor": _infix("^"),
    "not": _not,
    "shl": _shift("shift_left"),
    "shr": _shift("shift_right"),
    "where": lambda dtype, result, c, a, b: f"tl.where({c}, {a}, {b})",
    "cast": cast,
    "bitcast": _bitcast,
    "floor": _library("floor"),
    "ceil": _library("ceil"),
    "trunc": _library("trunc"),
    "round": _library("nearbyint"),
    "sqrt": _root,
    "rsqrt": _library("rsqrt"),
    "signbit": lambda dtype, result, a: f"libdevice.signbit({a}) != 0",
    "copysign": _library("copysign"),
    "uniform": _helper("uniform"),
    **{
        name: _library(name)
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
            "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "pow", "atan2", "hypot",
            "nextafter",
        )
    },
}  # fmt: skip

# Where the result is rounded to a half type at once, the last bits do not matter: faster instructions.
ROUGH: dict[str, Spelling] = {
    "div": _helper("rough_quotient"),
    "exp": _triton("exp"),
    "sqrt": _triton("sqrt"),
    "rsqrt": _triton("rsqrt"),
}
# Where the second operand is the same for many. The interpreter has no fused product and sum, which these take.
SHARED: dict[str, Spelling] = {} if INTERPRETED else {"div": _helper("shared_quotient")}
