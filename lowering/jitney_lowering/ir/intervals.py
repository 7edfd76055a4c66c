"""Between what an integer value lies, as far as that can be told from how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from jitney_lowering.index import Index, at_most, index, max_, min_
from jitney_lowering.ir.operations import INTEGERS
from jitney_lowering.ir.values import Apply, Checked, Constant, Load, Position, Value, holds, walk

Interval = tuple[Index | None, Index | None]  # the least and the greatest value, None where unknown
UNKNOWN: Interval = (None, None)
LARGE = 1 << 40  # with numbers below it sums stay in 64 bits


def interval(value: Value, limits: Mapping[str, Index]) -> Interval:
    """Expressions between which the value lies.

    Args:
        value: of an integer type.
        limits: buffer -> a number that all its elements are below; none of them is negative.
    """
    return intervals(value, limits)[value]


def intervals(value: Value, limits: Mapping[str, Index] = MappingProxyType({})) -> dict[Value, Interval]:
    """The same of each value that this one, of any type, is computed from."""
    known: dict[Value, Interval] = {}
    for v in walk(value):
        known[v] = _of(v, known, limits) if v.dtype in INTEGERS else UNKNOWN
    return known


def _of(v: Value, known: Mapping[Value, Interval], limits: Mapping[str, Index]) -> Interval:
    if isinstance(v, Constant):
        return index(int(v.value)), index(int(v.value))
    if isinstance(v, Position):
        return (v.index, v.index) if v.dtype is torch.int64 else UNKNOWN
    if isinstance(v, Load):
        return (index(0), limits[v.buffer] - 1) if v.buffer in limits and v.mask is None else UNKNOWN
    if isinstance(v, Checked):
        return known[v.value]
    if isinstance(v, Apply) and v.op in RULES:
        return RULES[v.op](v, [known[a] for a in v.args])
    return UNKNOWN


def _minimum(v: Apply, args: list[Interval]) -> Interval:
    (al, ah), (bl, bh) = args
    low = None if al is None or bl is None else min_(al, bl)
    return low, bh if ah is None else ah if bh is None else min_(ah, bh)


def _maximum(v: Apply, args: list[Interval]) -> Interval:
    (al, ah), (bl, bh) = args
    high = None if ah is None or bh is None else max_(ah, bh)
    return bl if al is None else al if bl is None else max_(al, bl), high


def _where(v: Apply, args: list[Interval]) -> Interval:
    _, (al, ah), (bl, bh) = args
    low = None if al is None or bl is None else min_(al, bl)
    return low, None if ah is None or bh is None else max_(ah, bh)


def _cast(v: Apply, args: list[Interval]) -> Interval:
    return args[0] if v.args[0].dtype in INTEGERS and holds(v.dtype, v.args[0].dtype) else UNKNOWN


def _remainder(v: Apply, args: list[Interval]) -> Interval:
    """Its sign is the divisor's."""
    low, high = args[1]
    if low is None or high is None or (low.bounds()[0] or 0) < 1:
        return UNKNOWN
    return index(0), high - 1


def _add(v: Apply, args: list[Interval]) -> Interval:
    (al, ah), (bl, bh) = args
    if v.dtype is not torch.int64 or not all(map(_is_small, args)):
        return UNKNOWN
    return None if al is None or bl is None else al + bl, None if ah is None or bh is None else ah + bh


def _sub(v: Apply, args: list[Interval]) -> Interval:
    (al, ah), (bl, bh) = args
    if v.dtype is not torch.int64 or not all(map(_is_small, args)):
        return UNKNOWN
    return None if al is None or bh is None else al - bh, None if ah is None or bl is None else ah - bl


def _abs(v: Apply, args: list[Interval]) -> Interval:
    ((low, high),) = args
    if v.dtype is not torch.int64 or low is None or high is None or not _is_small((low, high)):
        return UNKNOWN
    return index(0), max_(low * -1, high)


def _and(v: Apply, args: list[Interval]) -> Interval:
    """Not above the one that is not negative."""
    known = [high for low, high in args if low is not None and at_most(0, low)]
    return (index(0), known[0]) if known else UNKNOWN


def _is_small(given: Interval) -> bool:
    """Is it known at both ends, with no great numbers? Sums of others may go around."""
    return all(end is not None and (end.value is None or abs(end.value) < LARGE) for end in given)


RULES: dict[str, Callable[[Apply, list[Interval]], Interval]] = {
    "minimum": _minimum,
    "maximum": _maximum,
    "where": _where,
    "cast": _cast,
    "remainder": _remainder,
    "add": _add,
    "sub": _sub,
    "abs": _abs,
    "and": _and,
}
