"""Between what loop variables lie where a mask is true: parts of concatenations, slices and paddings are such masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from jitney_lowering.index import Index, Var, fits_int32, index, less
from jitney_lowering.ir.values import Apply, Constant, Position, Value

# comparison -> what is never negative where it is true, one expression or two
COMPARISONS: dict[str, Callable[[Index, Index], tuple[Index, ...]]] = {
    "lt": lambda a, b: (b - a - 1,),
    "le": lambda a, b: (b - a,),
    "gt": lambda a, b: (a - b - 1,),
    "ge": lambda a, b: (a - b,),
    "eq": lambda a, b: (a - b, b - a),
}


def ranges(mask: Value) -> dict[Var, tuple[Index, Index]]:
    """Variables that the mask confines -> the first value, and the one after the last, if these are in their order.

    Only comparisons of one variable with what no loop changes count, and of several bounds the first one that is
    proven to be the narrowest.
    """
    found: dict[Var, tuple[Index, Index]] = {}
    for amount in _nonnegative(mask):
        variables = [a for a in amount.atoms if isinstance(a, Var)]
        if len(variables) != 1:
            continue
        (var,) = variables
        sign, rest = amount.stride(var), amount.substitute({var: index(0)})
        if sign is None or sign.value not in (1, -1) or any(isinstance(a, Var) for a in rest.atoms):
            continue
        low, high = found.get(var, (index(0), var.size))
        if sign.value == 1 and less(low, -rest):
            low = -rest
        elif sign.value == -1 and less(rest + 1, high):
            high = rest + 1
        found[var] = (low, high)
    return {var: (low, high) for var, (low, high) in found.items() if less(low, high)}


def narrowed(mask: Value) -> tuple[dict[Var, Index], dict[Var, Index]]:
    """Variables over the mask's ranges alone.

    Returns:
        a confined variable -> an expression of a narrower one, and that one -> an expression of the confined one.
    """
    there: dict[Var, Index] = {}
    back: dict[Var, Index] = {}
    for var, (low, high) in ranges(mask).items():
        if low == 0 and high == var.size:
            continue
        narrow = Var(f"{var.name}_in", high - low)
        there[var], back[narrow] = narrow + low, var - low
    return there, back


def _nonnegative(mask: Value) -> Iterator[Index]:
    """Expressions that are never negative where the mask is true."""
    if not isinstance(mask, Apply):
        return
    if mask.op == "and":
        for part in mask.args:
            yield from _nonnegative(part)
    elif mask.op in COMPARISONS:
        a, b = (number(v) for v in mask.args)
        if a is not None and b is not None:
            yield from COMPARISONS[mask.op](a, b)


def number(value: Value) -> Index | None:
    """The integer, exactly; None if that cannot be told: fewer bits may hold another one."""
    if isinstance(value, Constant) and isinstance(value.value, int):
        return index(int(value.value))
    exact = isinstance(value, Position) and (
        value.dtype is torch.int64 or (value.dtype is torch.int32 and fits_int32(value.index))
    )
    return value.index if exact and isinstance(value, Position) else None
