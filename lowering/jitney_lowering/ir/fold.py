"""Reductions of a few values, written out: what a loop would accumulate, as one value."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from jitney_lowering.ir.operations import HALVES
from jitney_lowering.ir.values import Value, apply, constant

_COMBINED = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
_BETTER = {"argmax": "gt", "argmin": "lt"}


def folded(kind: str, values: Sequence[Value]) -> Value:
    """One of ``loops.REDUCTIONS`` of at least one value, from the first to the last.

    Sums begin with 0, as eager's do: that of negative zeros is 0. Those of halves are added up in float32.
    """
    if kind in _BETTER:
        return _first(kind, values)
    dtype = values[0].dtype
    if dtype in HALVES and kind in ("sum", "prod"):
        wide = [apply("cast", v, dtype=torch.float32) for v in values]
        return apply("cast", folded(kind, wide), dtype=dtype)
    if kind == "sum" and dtype.is_floating_point:
        values = [constant(0, dtype), *values]
    return functools.reduce(lambda a, b: combined(kind, a, b), values)


def combined(kind: str, so_far: Value, value: Value) -> Value:
    """What an accumulator that holds ``so_far`` holds after one value more, for any kind but positions."""
    return apply(_COMBINED[kind], so_far, value)


def _first(kind: str, values: Sequence[Value]) -> Value:
    """The position, int64, of the first extreme, or of the first nan."""
    best, found = values[0], constant(0, torch.int64)
    for number, value in enumerate(values[1:], 1):
        better = apply(_BETTER[kind], value, best)
        if value.dtype.is_floating_point:
            first_nan = apply("and", apply("isnan", value), apply("not", apply("isnan", best)))
            better = apply("or", better, first_nan)
        best = apply("where", better, value, best)
        found = apply("where", better, constant(number, torch.int64), found)
    return found
