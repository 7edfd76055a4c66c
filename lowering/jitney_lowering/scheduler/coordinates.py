"""Which iteration of a step fills a place in memory?"""

from __future__ import annotations

from typing import Any

from jitney_lowering.index import Index
from jitney_lowering.ir.loops import Computed
from jitney_lowering.scheduler.simplify import substituted
from jitney_lowering.scheduler.size_guess import guess


def coordinates(step: Computed, place: Index) -> dict[Any, Index] | None:
    """Which iteration of a pointwise step fills the place; None if that is not clear."""
    strides = {var: step.place.stride(var) for var in step.vars}
    known = [(stride, var) for var, stride in strides.items() if stride is not None]
    if len(known) < len(strides):
        return None
    turned: dict[Any, Index] = {var: var.size - 1 - var for stride, var in known if guess(stride) < 0}
    if turned:  # the same step, the other way
        found = coordinates(substituted(step, turned, step.loops), place)
        return found and {var: var.size - 1 - at if var in turned else at for var, at in found.items()}
    table: dict[Any, Index] = {}
    for stride, var in sorted(known, key=lambda pair: -guess(pair[0])):
        if guess(stride) <= 0:
            return None
        table[var] = place // stride % var.size
    return table if step.place.substitute(table) is place else None
