"""Parts of concatenations right after what they are made of, rather than all of them where they are joined.

A loop in Python that appends to a list has them joined at its end: by then the kernels that have made what the parts
need are full, and would keep it in memory for the parts' own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitney_lowering.ir.loops import Computed, Extern, Program, Step
from jitney_lowering.policy import Policy
from jitney_lowering.scheduler.group import Group
from jitney_lowering.scheduler.memory.peak import peak
from jitney_lowering.scheduler.traffic.recompute import time_of

Items = Sequence[Group | Extern]


def with_early_parts(
    program: Program,
    steps: Sequence[Step],
    items: Items,
    fused: Callable[[Sequence[Step]], Items],
    policy: Policy,
) -> tuple[Sequence[Step], Items]:
    """The steps and groups, or those with parts that come early, if less goes through memory.

    Args:
        program: the graph.
        steps: its steps, cleaned.
        items: groups and operators made of them.
        fused: makes groups and operators of other steps.
        policy: what suits the machine.
    """
    early = early_parts(steps, program)
    if early == [*steps]:
        return steps, items
    other = fused(early)
    faster = time_of(program, other, policy) < time_of(program, items, policy)
    return (early, other) if faster and peak(program, other) <= peak(program, items) else (steps, items)


def early_parts(steps: Sequence[Step], program: Program) -> list[Step]:
    """The steps, in an order in which they may run."""
    maker = {name: at for at, step in enumerate(steps) for name in step.writes}
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
    result: list[Step] = []
    for at, step in enumerate(steps):
        if at not in moved:
            result += [step]
        result += after.get(at, ())
    return result
