"""Arithmetic of positions in 32 bits where these hold it: with 64, comparing a query with a key takes as long as both
products.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from jitney_lowering.ir import Apply, Checked, Constant, Load, Position, Value, apply, constant, position, rebuild, walk

MOST = 2**31 - 1
Range = tuple[int, int]
_COMPARED = {"lt", "le", "gt", "ge", "eq", "ne"}


def narrowed(value: Value) -> Value:
    """The same value, with integers of 64 bits only where they may be large."""
    ranges: dict[Value, Range] = {}
    leaf: dict[Value, Value] = {}
    small: dict[Value, Value] = {}
    for v in walk(value):
        found = _range(v, ranges) if v.dtype is torch.int64 else None
        if found is not None and found[0] >= -MOST and found[1] <= MOST:
            ranges[v] = found
            small[v] = _as_int32(v, small)
        elif isinstance(v, Apply) and v.op in _COMPARED and all(a in small for a in v.args):
            leaf[v] = apply(v.op, *(small[a] for a in v.args))
        elif isinstance(v, Apply) and v.op == "cast" and v.args[0] in small and v.dtype.is_floating_point:
            leaf[v] = apply("cast", small[v.args[0]], dtype=v.dtype)
    return rebuild(value, leaf) if leaf and not any(isinstance(v, Checked) for v in walk(value)) else value


def _as_int32(v: Value, small: dict[Value, Value]) -> Value:
    if isinstance(v, Position):
        return position(v.index, torch.int32)
    if isinstance(v, Constant):
        return constant(int(v.value), torch.int32)
    assert isinstance(v, Apply)
    if v.op == "cast":
        return v.args[0] if v.args[0].dtype is torch.int32 else small[v.args[0]]
    return apply(v.op, *(small[a] for a in v.args))


def _range(v: Value, ranges: dict[Value, Range]) -> Range | None:
    """Between what an integer lies; None if nobody knows."""
    if isinstance(v, Constant):
        return int(v.value), int(v.value)
    if isinstance(v, Position):
        low, high = v.index.bounds()
        return None if low is None or high is None else (low, high)
    if isinstance(v, Load) or not isinstance(v, Apply) or v.op not in _RANGES:
        return None
    if v.op == "cast":
        return (-MOST, MOST) if v.args[0].dtype is torch.int32 else ranges.get(v.args[0])
    given = [ranges.get(a) for a in v.args]
    known = [r for r in given if r is not None]
    return _RANGES[v.op](*known) if len(known) == len(given) else None


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _size(a: Range) -> Range:
    return (0, max(-a[0], a[1])) if a[0] < 0 < a[1] else (min(map(abs, a)), max(map(abs, a)))


_RANGES: dict[str, Callable[..., Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": _size,
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "cast": lambda a: a,
}
