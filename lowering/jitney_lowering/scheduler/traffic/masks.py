"""Between what loop variables lie where a mask is true: parts of concatenations, slices and paddings are such masks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import torch

from jitney_lowering.index import Index, Var, at_most, fits_int32, index, less
from jitney_lowering.ir.values import Apply, Constant, Position, Value, walk

# comparison -> what is never negative where it is true, one expression or two
COMPARISONS: dict[str, Callable[[Index, Index], tuple[Index, ...]]] = {
    "lt": lambda a, b: (b - a - 1,),
    "le": lambda a, b: (b - a,),
    "gt": lambda a, b: (a - b - 1,),
    "ge": lambda a, b: (a - b,),
    "eq": lambda a, b: (a - b, b - a),
}


@functools.lru_cache(maxsize=1 << 12)
def ranges(mask: Value) -> Mapping[Var, tuple[Index, Index]]:
    """Variables that the mask confines -> the first value, and the one after the last, if these are in their order.

    Only comparisons of one variable with what no loop changes count, and of several bounds the first one that is
    proven to be the narrowest.
    """
    found: dict[Var, tuple[Index, Index]] = {}
    for bound in filter(None, map(_bound, _nonnegative(mask))):
        var, least, end = bound
        low, high = found.get(var, (index(0), var.size))
        if least is not None and less(low, least):
            low = least
        if end is not None and less(end, high):
            high = end
        found[var] = (low, high)
    return {var: (low, high) for var, (low, high) in found.items() if less(low, high)}


def exact_range(mask: Value, var: Var) -> tuple[Index, Index] | None:
    """The first value of a variable for which a mask is true, and the one after the last, if it is for all between.

    None if that is not proven: a bound that nobody can compare with another one is no part of ``ranges``.
    """
    for v in walk(mask):
        if isinstance(v, Apply) and v.op in COMPARISONS:
            if any(number(a) is None for a in v.args):
                return None
        elif isinstance(v, Apply) and (v.op != "and" or v.dtype is not torch.bool):
            return None
    low, high = ranges(mask).get(var, (None, None))
    if low is None or high is None:
        return None
    for bound in map(_bound, _nonnegative(mask)):
        if bound is None or bound[0] is not var:
            return None
        _, least, end = bound
        if (least is not None and not at_most(least, low)) or (end is not None and not at_most(high, end)):
            return None
    return low, high


@functools.lru_cache(maxsize=1 << 12)
def _bound(amount: Index) -> tuple[Var, Index | None, Index | None] | None:
    """The variable that must not be below one bound, or must be before another, if an amount is not negative."""
    variables = [a for a in amount.atoms if isinstance(a, Var)]
    if len(variables) != 1:
        return None
    (var,) = variables
    sign, rest = amount.stride(var), amount.substitute({var: index(0)})
    if sign is None or sign.value not in (1, -1) or any(isinstance(a, Var) for a in rest.atoms):
        return None
    return (var, -rest, None) if sign.value == 1 else (var, None, rest + 1)


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
