"""Steps with the groups that ``fuse`` makes of them: what passes over traffic and memory compare."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jitney_lowering.index import Names
from jitney_lowering.ir.loops import Extern, Program, Step
from jitney_lowering.policy import Policy
from jitney_lowering.scheduler.fuse import fuse
from jitney_lowering.scheduler.group import Group
from jitney_lowering.scheduler.memory.peak import peak
from jitney_lowering.scheduler.single_row import widest
from jitney_lowering.scheduler.traffic.estimate import time_of

MANY_ROWS = 8  # kernels of one program each: norms of many parameters, say


@dataclass(frozen=True)
class Fused:
    """One way to run a program.

    Args:
        program: the graph.
        steps: its steps, cleaned.
        items: groups and operators made of them.
        names: for what is new in groups.
        policy: what suits the machine.
    """

    program: Program
    steps: Sequence[Step]
    items: Sequence[Group | Extern]
    names: Names
    policy: Policy

    @classmethod
    def of(cls, program: Program, steps: Sequence[Step], names: Names, policy: Policy) -> Fused:
        """The steps' groups; without kernels of one row, if many would run side by side: they are parts of fewer."""
        if widest(steps, policy) > MANY_ROWS:
            policy = replace(policy, single_row=0)
        return cls(program, steps, fuse(steps, program, names, policy), names, policy)

    def again(self, steps: Sequence[Step], program: Program | None = None) -> Fused:
        """Other steps; ``program``: with other buffers."""
        return Fused.of(program or self.program, steps, self.names, self.policy)

    @functools.cached_property
    def time(self) -> float:
        """See ``estimate.time_of``."""
        return time_of(self.program, self.items, self.policy)

    @functools.cached_property
    def peak(self) -> int:
        """Bytes of memory, at the highest."""
        return peak(self.program, self.items)

    def or_better(self, other: Fused) -> Fused:
        """The other one, if less goes through memory and not more is needed."""
        return other if other.time < self.time and other.peak <= self.peak else self
