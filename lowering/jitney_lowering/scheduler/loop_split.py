"""A loop whose variable is divided, as over a broadcast tensor that was flattened, becomes several loops.

Indices then need no division in each iteration, and accesses are to neighbours or to one place. Steps go through their
iterations in the same order as before.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitney_lowering.index import FloorDiv, Mod, Names, Var, visit
from jitney_lowering.ir.loops import SCANS, Computed, Step
from jitney_lowering.scheduler.simplify import substituted


def with_split_loops(steps: Sequence[Step], names: Names, least: int) -> list[Step]:
    """The steps, but scans, with divided loops split.

    Args:
        steps: not changed.
        names: for new variables.
        least: iterations of an inner loop, at least: short ones cost more than what they save.
    """
    return [_split(s, names, least) if isinstance(s, Computed) and s.kind not in SCANS else s for s in steps]


def _split(step: Computed, names: Names, least: int) -> Computed:
    while (found := _divided(step, least)) is not None:
        var, size = found
        assert var.size.value is not None
        outer, inner = names.var(var.size.value // size, "v"), names.var(size, "v")
        loops = [each for v in step.loops for each in ((outer, inner) if v is var else (v,))]
        step = substituted(step, {var: outer * size + inner}, loops)
    return step


def _divided(step: Computed, least: int) -> tuple[Var, int] | None:
    """A loop and its greatest divisor that makes whole inner loops; None without one."""
    found: tuple[Var, int] | None = None
    for place in step.places():
        if not any(isinstance(atom, Var) for atom in place.atoms):
            continue
        for node in visit(place):
            if not isinstance(node, FloorDiv | Mod) or not isinstance(var := node.a, Var) or var not in step.loops:
                continue
            count, size = var.size.value, node.b.value
            if count is None or size is None or not least <= size < count or count % size:
                continue
            if found is None or size > found[1]:
                found = var, size
    return found
