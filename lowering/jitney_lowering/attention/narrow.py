"""Arithmetic of positions in 32 bits where these hold it: with 64, comparing a query with a key takes as long as both
products.
"""

from __future__ import annotations

import torch

from jitney_lowering.ir.intervals import Interval, intervals
from jitney_lowering.ir.values import (
    Apply,
    Checked,
    Constant,
    Position,
    Value,
    apply,
    constant,
    position,
    rebuild,
    walk,
)

MOST = 2**31 - 1
_COMPARED = {"lt", "le", "gt", "ge", "eq", "ne"}
_COMPUTED = {"add", "sub", "abs", "minimum", "maximum", "where"}


def narrowed(value: Value) -> Value:
    """The same value, with integers of 64 bits only where they may be large."""
    known = intervals(value)
    small: dict[Value, Value] = {}  # integers of 64 bits -> the same of 32
    leaf: dict[Value, Value] = {}
    for v in walk(value):
        if isinstance(v, Checked):
            return value
        if v.dtype is torch.int64:
            found = _as_int32(v, small) if _fits(known[v]) else None
            if found is not None:
                small[v] = found
        elif isinstance(v, Apply) and v.op in _COMPARED and all(a in small for a in v.args):
            leaf[v] = apply(v.op, *(small[a] for a in v.args))
        elif isinstance(v, Apply) and v.op == "cast" and v.args[0] in small and v.dtype.is_floating_point:
            leaf[v] = apply("cast", small[v.args[0]], dtype=v.dtype)
    return rebuild(value, leaf) if leaf else value


def _fits(found: Interval) -> bool:
    low, high = found
    if low is None or high is None:
        return False
    least, most = low.bounds()[0], high.bounds()[1]
    return least is not None and most is not None and least >= -MOST and most <= MOST


def _as_int32(v: Value, small: dict[Value, Value]) -> Value | None:
    if isinstance(v, Position):
        return position(v.index, torch.int32)
    if isinstance(v, Constant):
        return constant(int(v.value), torch.int32)
    if not isinstance(v, Apply) or v.op not in _COMPUTED:
        return None
    if any(a.dtype is torch.int64 and a not in small for a in v.args):
        return None
    return apply(v.op, *(small.get(a, a) for a in v.args))
