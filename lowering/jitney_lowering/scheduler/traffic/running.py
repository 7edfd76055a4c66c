"""Running totals, where their terms are made rather than all at the end.

A loop in Python that adds to a total makes one long sum, whose terms would all be kept until the last one is there:

    t = a + b + c + ... + h            p = a + b + c + d (once there is d)      t = p + e + ... + h
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from jitney_lowering.index import Names
from jitney_lowering.ir.loops import Buffer, Computed, Extern, Program, Step
from jitney_lowering.ir.values import Apply, Checked, Load, Value, load, rebuild, walk
from jitney_lowering.scheduler.size_guess import guess
from jitney_lowering.scheduler.traffic.estimate import pinned
from jitney_lowering.scheduler.traffic.fused import Fused

TERMS = 4  # what is kept until they are put together
LARGE = 1 << 18  # bytes of what it matters for
WORTH = 0.9  # of the peak, at most, is what is needed then
SLACK = 1.05  # times as much through memory is no more


def with_running_values(fused: Fused) -> Fused:
    """The same, or with parts of long sums where their terms are, if less memory is needed at a time."""
    buffers = dict(fused.program.buffers)
    steps = running_values(fused.steps, fused.program, buffers, pinned(fused.program, fused.items), fused.names)
    if len(steps) == len(fused.steps):
        return fused
    other = fused.again(steps, replace(fused.program, buffers=buffers))
    return other if other.peak <= WORTH * fused.peak and other.time <= SLACK * fused.time else fused


def running_values(
    steps: Sequence[Step], program: Program, buffers: dict[str, Buffer], fixed: Collection[str], names: Names
) -> list[Step]:
    """The steps, and new ones among them for what can be computed earlier of what reads much.

    Args:
        steps: the program's.
        program: the graph.
        buffers: its buffers; gets the new ones.
        fixed: buffers that are there to the end, or that others than kernels read.
        names: for what is new.
    """
    changing = frozenset().union(*(step.written for step in steps if isinstance(step, Extern)))
    maker = {name: at for at, step in enumerate(steps) for name in step.writes}
    last = {name: at for at, step in enumerate(steps) for name in step.reads}
    more: dict[int, list[Step]] = {}
    result: list[Step] = []
    for at, step in enumerate(steps):
        if isinstance(step, Computed) and step.kind == "pointwise" and program.buffers[step.buffer].home is None:
            held = {
                name for name in step.reads
                if name in maker and last[name] == at and name not in fixed and _is_large(program.buffers[name])
            }  # fmt: skip
            if len(held) > TERMS and step.reads.isdisjoint(changing):
                step = _Chain(step, held, maker, buffers, names).parted(more)
        result.append(step)
    return [s for at, step in enumerate(result) for s in (step, *more.get(at, ()))]


class _Chain:
    """A step that reads, at the place of its own iteration, what was made at different times.

    Args:
        step: what it does.
        held: buffers that only it still needs.
        maker: buffer -> the number of the step that fills it.
        buffers: all; gets the new ones.
        names: for what is new.
    """

    def __init__(
        self, step: Computed, held: Collection[str], maker: dict[str, int], buffers: dict[str, Buffer], names: Names
    ) -> None:
        self.step = step
        self.held = held
        self.maker = maker
        self.buffers = buffers
        self.names = names

    def parted(self, more: dict[int, list[Step]]) -> Computed:
        """The step with parts of its value in memory; ``more``: gets the steps that put them there, by their places."""
        terms: dict[Value, frozenset[str] | None] = {}  # what each value needs of that; None: it must stay here
        ready: dict[Value, int] = {}  # when all that it reads is there
        leaf: dict[Any, Value] = {}
        end = max(self.maker[name] for name in self.held)
        for v in walk(self.step.value):
            ready[v] = max((ready[p] for p in v.parts), default=-1)
            parts = [terms[p] for p in v.parts]
            terms[v] = None if None in parts else frozenset().union(*(p for p in parts if p is not None))
            if isinstance(v, Checked):
                terms[v] = None
            elif isinstance(v, Load):
                ready[v] = max(ready[v], self.maker.get(v.buffer, -1))
                aligned = v.index is self.step.place and v.mask is None
                terms[v] = (frozenset({v.buffer}) if aligned else None) if v.buffer in self.held else terms[v]
            found = terms[v]
            if isinstance(v, Apply) and found is not None and len(found) >= TERMS and ready[v] < end:
                name = self._kept(v, leaf, more.setdefault(ready[v], []), ready[v])
                terms[v] = frozenset({name})
        return replace(self.step, value=rebuild(self.step.value, leaf)) if leaf else self.step

    def _kept(self, value: Value, leaf: dict[Any, Value], more: list[Step], at: int) -> str:
        """The name of a buffer that holds the value, and a step that fills it."""
        like = self.buffers[self.step.buffer]
        made = replace(like, name=self.names.name(f"{like.name}_p"), dtype=value.dtype)
        self.buffers[made.name] = made
        more.append(replace(self.step, buffer=made.name, value=rebuild(value, leaf)))
        leaf[value] = load(made.name, self.step.place, value.dtype)
        return made.name


def _is_large(buffer: Buffer) -> bool:
    return guess(buffer.extent) * buffer.dtype.itemsize >= LARGE
