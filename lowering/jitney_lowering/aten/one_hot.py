"""Sums of which all terms but one are zero, such as the gradient of a loss that picks one class."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jitney_lowering.index import Var
from jitney_lowering.ir.values import Apply, Constant, Load, Position, Value, apply, constant, position, walk

COUNTING = (torch.int32, torch.int64)  # other types hold numbers between those of a loop, or not all of them


def only_one(value: Value, reduced: Sequence[Var]) -> Value | None:
    """The sum of ``value`` over one loop, without the loop, if only the term of a known number is not zero.

    That is ``where(number == i and more, x, 0)``, where nothing but ``i`` depends on the loop. None for all else. The
    sum of zeros and one number is that number; of ``-0.0`` it is ``0.0``, as here.
    """
    if len(reduced) != 1 or not isinstance(value, Apply) or value.op != "where":
        return None
    (loop,) = reduced
    condition, term, other = value.args
    if not isinstance(other, Constant) or other.value != 0 or _depends(term, loop):
        return None
    found: Value | None = None
    rest: list[Value] = []
    for part in _conjuncts(condition):
        if not _depends(part, loop):
            rest.append(part)
        elif found is None:
            found = _chosen(part, loop)
            if found is None:
                return None
        else:
            return None
    if found is None:
        return None
    low = apply("ge", found, constant(0, found.dtype))
    high = apply("lt", found, position(loop.size, found.dtype))
    here = apply("and", low, high)
    for part in rest:
        here = apply("and", here, part)
    return apply("where", here, _plus_zero(term), other)


def _plus_zero(term: Value) -> Value:
    return apply("add", term, constant(0, term.dtype))


def _conjuncts(value: Value) -> list[Value]:
    if isinstance(value, Apply) and value.op == "and":
        return [part for arg in value.args for part in _conjuncts(arg)]
    return [value]


def _chosen(value: Value, loop: Var) -> Value | None:
    """What the loop's number is compared with."""
    if not isinstance(value, Apply) or value.op != "eq" or value.args[0].dtype not in COUNTING:
        return None
    for number, other in (value.args, value.args[::-1]):
        if isinstance(number, Position) and number.index is loop and not _depends(other, loop):
            return other
    return None


def _depends(value: Value, loop: Var) -> bool:
    return any(isinstance(v, (Load, Position)) and loop in v.index.atoms for v in walk(value))
