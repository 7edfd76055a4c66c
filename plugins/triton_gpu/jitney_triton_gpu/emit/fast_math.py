"""Which values matter only as far as a half type can tell: eight or eleven bits of float32's twenty-four."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from jitney_lowering.ir import HALVES, Apply, Constant, Reduce, Scan, Statement, Value, walk

# Operations that pass relative errors on as they are.
_KEEPING = frozenset({"mul", "div", "neg", "abs", "where"})


def rough(statements: Iterable[Statement]) -> frozenset[Value]:
    """Values of float32 all of whose readers round them to a half type, or pass them on to such as do."""
    readers: dict[Value, list[Value]] = {}
    kept: set[Value] = set()
    seen: set[Value] = set()
    order: list[Value] = []  # operands first
    for s in statements:
        if isinstance(s, (Reduce, Scan)) or s.value.dtype not in HALVES:
            kept.add(s.value)
        for v in walk(s.value):
            if v not in seen:
                seen.add(v)
                order.append(v)
                for part in v.parts:
                    readers.setdefault(part, []).append(v)
    found: set[Value] = set()
    for v in reversed(order):
        if v.dtype is torch.float32 and v not in kept and readers.get(v):
            if all(_rounds(u) or (u in found and _passes_on(u)) for u in readers[v]):
                found.add(v)
    return frozenset(found)


def _rounds(v: Value) -> bool:
    return isinstance(v, Apply) and v.op == "cast" and v.dtype in HALVES


def _passes_on(v: Value) -> bool:
    if not isinstance(v, Apply):
        return False
    if v.op == "add":  # of two that are positive: ``1 + exp(x)``
        return all(_is_positive(a) for a in v.args)
    return v.op in _KEEPING


def _is_positive(v: Value) -> bool:
    if isinstance(v, Constant):
        return v.value > 0
    return isinstance(v, Apply) and v.op == "exp"
