"""The scalar operations that values are made of: their arity, the dtype they give, and what they mean.

An emitter implements every row of ``OPERATIONS``; ``meaning`` is the definition, over whole tensors, and the oracle of
the tests. Operations on float16 and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from jitney_lowering.philox import uniform
from jitney_lowering.signals import NoFormula

Dtypes = tuple[torch.dtype, ...]
Result = Callable[[Dtypes, torch.dtype | None], torch.dtype]

HALVES = frozenset({torch.float16, torch.bfloat16})
FLOATS = HALVES | {torch.float32, torch.float64}
INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
NUMBERS = FLOATS | INTEGERS
ALL = NUMBERS | {torch.bool}
FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz})
"""Loaded, stored, chosen from and converted, if the policy has ``Policy.float8``; nothing is computed in them."""

COMPLEX = frozenset({torch.complex64, torch.complex128})
"""No operation's: values are pairs of real ones (``values.Pair``) while a graph is lowered."""


@dataclass(frozen=True)
class Operation:
    """One scalar operation.

    Args:
        arity: how many operands.
        result: the dtype of the result from those of the operands; raises ``NoFormula`` if they do not fit.
        meaning: the same over tensors of equal shapes.
        cost: rough time of one element relative to an addition; what costs more than some additions is kept rather
            than computed again.
        infix: how it prints between two operands; empty for a function.
    """

    arity: int
    result: Result
    meaning: Callable[..., torch.Tensor]
    cost: int = 1
    infix: str = ""


def _alike(allowed: frozenset[torch.dtype]) -> Result:
    def result(dtypes: Dtypes, asked: torch.dtype | None) -> torch.dtype:
        if len(set(dtypes)) != 1 or dtypes[0] not in allowed:
            raise NoFormula(
                f"operands of {', '.join(map(str, dtypes))}; one dtype of {sorted(map(str, allowed))} wanted"
            )
        if asked not in (None, dtypes[0]):
            raise NoFormula(f"operands of {dtypes[0]} give no {asked}")
        return dtypes[0]

    return result


def _truth(allowed: frozenset[torch.dtype]) -> Result:
    alike = _alike(allowed)

    def result(dtypes: Dtypes, asked: torch.dtype | None) -> torch.dtype:
        alike(dtypes, None)
        return torch.bool

    return result


def _choice(dtypes: Dtypes, asked: torch.dtype | None) -> torch.dtype:
    if dtypes[0] is not torch.bool:
        raise NoFormula(f"the condition is {dtypes[0]}, not bool")
    return _alike(ALL | FLOAT8)(dtypes[1:], asked)


def _asked(dtypes: Dtypes, asked: torch.dtype | None) -> torch.dtype:
    if asked not in ALL | FLOAT8:
        raise NoFormula(f"cannot convert to {asked}")
    return asked


def _bits(dtypes: Dtypes, asked: torch.dtype | None) -> torch.dtype:
    if asked not in ALL | FLOAT8 or asked.itemsize != dtypes[0].itemsize:
        raise NoFormula(f"{dtypes[0]} and {asked} have not the same number of bits")
    return asked


def _logical(dtypes: Dtypes, asked: torch.dtype | None) -> torch.dtype:
    return _alike(INTEGERS | {torch.bool})(dtypes, asked)


def _drawn(dtypes: Dtypes, asked: torch.dtype | None) -> torch.dtype:
    _alike(frozenset({torch.int64}))(dtypes, None)
    return torch.float32


_float, _number, _integer = _alike(FLOATS), _alike(NUMBERS), _alike(INTEGERS)


def _unary(name: str, cost: int, meaning: Callable[..., torch.Tensor] | None = None) -> dict[str, Operation]:
    return {name: Operation(1, _float, meaning or getattr(torch, name), cost)}


def _compare(name: str, infix: str) -> dict[str, Operation]:
    return {name: Operation(2, _truth(ALL), getattr(torch, name), infix=infix)}


def _cast(x: torch.Tensor, dtype: Any = None) -> torch.Tensor:
    return x.to(dtype)


def _bitcast(x: torch.Tensor, dtype: Any = None) -> torch.Tensor:
    return x.view(dtype)


OPERATIONS: dict[str, Operation] = {
    "add": Operation(2, _number, torch.add, infix="+"),
    "sub": Operation(2, _number, torch.sub, infix="-"),
    "mul": Operation(2, _number, torch.mul, infix="*"),
    "div": Operation(2, _float, torch.div, 4, infix="/"),
    # Integer division; the divisor is never zero, which whoever lowers to it has made sure of.
    "floordiv": Operation(2, _integer, lambda a, b: torch.div(a, b, rounding_mode="floor"), 8, infix="//"),
    "truncdiv": Operation(2, _integer, lambda a, b: torch.div(a, b, rounding_mode="trunc"), 8),
    "remainder": Operation(2, _number, torch.remainder, 8),  # the sign is the divisor's, as in Python
    "fmod": Operation(2, _number, torch.fmod, 8),  # the sign is the dividend's, as in C
    "neg": Operation(1, _number, torch.neg),
    "abs": Operation(1, _number, torch.abs),
    "maximum": Operation(2, _alike(ALL), torch.maximum),  # nan if one is nan
    "minimum": Operation(2, _alike(ALL), torch.minimum),
    "fma": Operation(3, _float, lambda a, b, c: torch.addcmul(c, a, b)),  # a*b + c, rounded once or twice
    # Comparisons: false if one is nan, but "ne".
    **_compare("eq", "=="),
    **_compare("ne", "!="),
    **_compare("lt", "<"),
    **_compare("le", "<="),
    **_compare("gt", ">"),
    **_compare("ge", ">="),
    "isnan": Operation(1, _truth(FLOATS), torch.isnan),
    "and": Operation(2, _logical, torch.bitwise_and, infix="&"),
    "or": Operation(2, _logical, torch.bitwise_or, infix="|"),
    "xor": Operation(2, _logical, torch.bitwise_xor, infix="^"),
    "not": Operation(1, _logical, torch.bitwise_not),
    "shl": Operation(2, _integer, torch.bitwise_left_shift, infix="<<"),  # as torch: 0 where the shift is too far
    "shr": Operation(2, _integer, torch.bitwise_right_shift, infix=">>"),  # arithmetic for signed integers
    "where": Operation(3, _choice, torch.where),
    "cast": Operation(1, _asked, _cast),  # float to integer: towards zero
    "bitcast": Operation(1, _bits, _bitcast),
    "floor": Operation(1, _float, torch.floor),
    "ceil": Operation(1, _float, torch.ceil),
    "trunc": Operation(1, _float, torch.trunc),
    "round": Operation(1, _float, torch.round),  # half to even
    "sqrt": Operation(1, _float, torch.sqrt, 6),
    "rsqrt": Operation(1, _float, torch.rsqrt, 8),
    "signbit": Operation(1, _truth(FLOATS), torch.signbit),
    "copysign": Operation(2, _float, torch.copysign),
    **_unary("exp", 12),
    **_unary("exp2", 12),
    **_unary("expm1", 16),
    **_unary("log", 12),
    **_unary("log2", 14),
    **_unary("log10", 14),
    **_unary("log1p", 16),
    **_unary("sin", 20),
    **_unary("cos", 20),
    **_unary("tan", 24),
    **_unary("asin", 20),
    **_unary("acos", 20),
    **_unary("atan", 20),
    **_unary("sinh", 24),
    **_unary("cosh", 24),
    **_unary("tanh", 16),
    **_unary("asinh", 28),
    **_unary("acosh", 28),
    **_unary("atanh", 24),
    **_unary("erf", 20),
    **_unary("erfc", 28),
    **_unary("lgamma", 60),
    "pow": Operation(2, _float, torch.pow, 40),
    "atan2": Operation(2, _float, torch.atan2, 28),
    "hypot": Operation(2, _float, torch.hypot, 12),
    "uniform": Operation(2, _drawn, uniform, 100),  # of a seed and a counter: see ``jitney_lowering/philox.py``
    "nextafter": Operation(2, _alike(frozenset({torch.float32, torch.float64})), torch.nextafter, 8),
}
