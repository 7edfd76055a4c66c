"""Parts of concatenations right after what they are made of, rather than all of them where they are joined.

A loop in Python that appends to a list has them joined at its end: by then the kernels that have made what the parts
need are full, and would keep it in memory for the parts' own.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitney_lowering.ir.loops import Computed, Program, Step
from jitney_lowering.scheduler.traffic.fused import Fused


def with_early_parts(fused: Fused) -> Fused:
    """The same, or with parts that come early, if less goes through memory."""
    early = early_parts(fused.steps, fused.program)
    return fused if early == [*fused.steps] else fused.or_better(fused.again(early))


def early_parts(steps: Sequence[Step], program: Program) -> list[Step]:
    """The steps, in an order in which they may run."""
    maker: dict[str, int] = {}  # of the steps so far
    after: dict[int, list[Step]] = {}
    moved: set[int] = set()
    last = -1  # operator that changes something
    for at, step in enumerate(steps):
        if not isinstance(step, Computed):
            last = at if step.written else last
        elif step.kind == "pointwise" and program.buffers[step.buffer].home is not None:
            place = max((maker[name] for name in step.reads if name in maker), default=-1)
            if last < place:
                after.setdefault(place, []).append(step)
                moved.add(at)
        maker |= dict.fromkeys(step.writes, at)
    result: list[Step] = []
    for at, step in enumerate(steps):
        if at not in moved:
            result += [step]
        result += after.get(at, ())
    return result
