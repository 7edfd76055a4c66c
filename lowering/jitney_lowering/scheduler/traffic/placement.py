"""Parts of a concatenation that are computed where they belong, rather than in memory of their own and then copied.

A pointwise step chooses, by the place, between what others have computed and values of its own:

    p[i] = ...                                              b.part0[i] = ...
    b[i] = where(i < 5, p[i] if i < 5, 2 * x[i - 5])        b.part1[i] = 2 * x[i]      b = parts, joined

Each of the others may be written into the result at once. That is a matter of memory traffic and
of kernels: what is read in the kernel that chooses need not be in memory at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from jitney_lowering.index import Index, Var, at_most, index, less, max_, min_
from jitney_lowering.ir.loops import SCANS, SCATTER, Buffer, Computed, Extern, Program, Step, Strided
from jitney_lowering.ir.values import Apply, Load, Value, constant, load, rebuild, walk
from jitney_lowering.scheduler.group import Group
from jitney_lowering.scheduler.traffic.estimate import pinned
from jitney_lowering.scheduler.traffic.fused import Fused
from jitney_lowering.scheduler.traffic.masks import COMPARISONS, exact_range, number
from jitney_lowering.scheduler.traffic.recompute import coordinates, iteration

MOST_PARTS = 8


@dataclass(frozen=True)
class Part:
    """From one number to before another one of a loop the value is this."""

    low: Index
    high: Index
    value: Value


def parts_of(value: Value, loops: Sequence[Var]) -> tuple[Var, list[Part]] | None:
    """The loop by which the value chooses, and its parts, which cover all of it; None if it does not choose so."""
    for var in loops:
        found = _split(value, var, index(0), var.size)
        if found is not None and 1 < len(found) <= MOST_PARTS:
            return var, found
    return None


def _split(value: Value, var: Var, low: Index, high: Index) -> list[Part] | None:
    """The parts between two numbers; None if the order of their bounds is not known."""
    confined = exact_range(value.args[0], var) if isinstance(value, Apply) and value.op == "where" else None
    if confined is None or not isinstance(value, Apply):
        return [Part(low, high, value)]
    first, last = confined
    known = {first, last, low, high}
    first = min_(max_(first, low), high)
    last = max_(min_(last, high), first)
    if not {first, last} <= known:
        return None
    _, inside, outside = value.args
    result: list[Part] = []
    for start, end, chosen in ((low, first, outside), (first, last, inside), (last, high, outside)):
        if start == end:
            continue
        more = _split(chosen, var, start, end)
        if more is None:
            return None
        result += more
    return result


def settled(value: Value) -> Value:
    """The value without comparisons whose outcome is known, and without masks that are true everywhere."""
    known: dict[Any, Value] = {}
    for v in walk(value):
        if not isinstance(v, Apply) or v.op not in COMPARISONS:
            continue
        a, b = (number(p) for p in v.args)
        if a is None or b is None:
            continue
        amounts = COMPARISONS[v.op](a, b)
        if all(at_most(0, amount) for amount in amounts):
            known[v] = constant(True, torch.bool)
        elif any(less(amount, 0) for amount in amounts):
            known[v] = constant(False, torch.bool)
    return rebuild(value, known)


class Placement:
    """The steps of a program, and its buffers, with parts where they belong.

    Args:
        program: the graph.
        steps: those that ``items`` were made of.
        items: groups and operators.
    """

    def __init__(self, program: Program, steps: Sequence[Step], items: Sequence[Group | Extern]) -> None:
        self.steps = steps
        self.buffers: dict[str, Buffer] = dict(program.buffers)
        self.fixed = pinned(program, items)
        self.makers = {s.buffer: s for s in steps if isinstance(s, Computed)}
        self.whole: set[str] = set()  # what is all of its parts
        self.loads: dict[str, set[Load]] = {}
        for step in steps:
            for v in walk(step.value) if isinstance(step, Computed) else ():
                if isinstance(v, Load):
                    self.loads.setdefault(v.buffer, set()).add(v)
        self.group = {name: n for n, item in enumerate(items) if isinstance(item, Group) for name in item.makers}

    def rewritten(self) -> list[Step] | None:
        """The steps; None if nothing is placed."""
        moved: dict[str, Computed] = {}
        result: list[Step] = []
        for step in self.steps:
            more = self._joined(step, moved) if isinstance(step, Computed) and step.kind == "pointwise" else None
            result += [step] if more is None else more
        if not moved:
            return None
        result = [moved.get(s.buffer, s) if isinstance(s, Computed) else s for s in result]
        leaf: dict[Any, Value] = {}
        for step in result:
            for read in walk(step.value) if isinstance(step, Computed) else ():
                if isinstance(read, Load) and read.buffer in moved:
                    seen = iteration(self.makers[read.buffer], read)
                    if seen is None:
                        return None
                    leaf[read] = load(read.buffer, seen(moved[read.buffer].place), read.dtype, (), read.mask)
        return [replace(s, value=rebuild(s.value, leaf)) if isinstance(s, Computed) else s for s in result]

    def _joined(self, step: Computed, moved: dict[str, Computed]) -> list[Step] | None:
        """What stands for a step that chooses: what it computes itself, part by part, and the whole of all parts.

        ``moved``: takes the steps that fill the other parts, by their buffers.
        """
        whole = self.buffers[step.buffer]
        free = whole.home is None and step.buffer not in moved
        found = parts_of(step.value, step.vars) if free else None
        if found is None:
            return None
        var, parts = found
        own: dict[str, tuple[Computed, Buffer]] = {}
        views: list[Strided] = []
        others: dict[str, tuple[Computed, Buffer]] = {}
        for count, part in enumerate(parts):
            inner = Var(f"{var.name}_in", part.high - part.low)
            loops = tuple([inner if v is var else v for v in step.loops])
            place = step.place.substitute({var: inner + part.low})
            value = _within(part, var, inner)
            mover = self._maker(step, value, loops, {*others, *moved, *self.whole})
            order = loops if mover is None else tuple(mover[1].keys())
            if mover is not None:
                place = place.substitute({old: index(new) for new, old in mover[1].items()})
            name = f"{step.buffer}p{count}" if mover is None else mover[0].buffer
            buffer = _homed(name, whole, order, place)
            if buffer is None:
                return None
            at = buffer.place([index(v) for v in order])
            if mover is None:
                own[name] = replace(step, buffer=name, vars=loops, place=at, value=value, order=loops), buffer
            else:
                others[name] = replace(mover[0], place=at), buffer
            views.append(Strided(name, buffer.dtype, buffer.size, buffer.stride, index(0)))
        if not others:
            return None
        moved |= {name: maker for name, (maker, _) in others.items()}
        self.buffers |= {name: buffer for name, (_, buffer) in (own | others).items()}
        self.whole.add(step.buffer)
        join = torch.ops.aten.cat.default
        return [
            *(new for new, _ in own.values()),
            Extern((step.buffer,), join, (views, 0), {}, reason="joined", nodes=step.nodes),
        ]

    def _maker(
        self, step: Computed, value: Value, loops: Sequence[Var], others: Collection[str]
    ) -> tuple[Computed, dict[Var, Var]] | None:
        """Who fills the part, in a kernel before, and the part's loop for each of the maker's.

        ``others``: buffers that stay where they are.
        """
        if not isinstance(value, Load) or value.indirect or value.mask is not None or value.buffer in self.fixed:
            return None
        name, maker = value.buffer, self.makers.get(value.buffer)
        if maker is None or maker.kind in (*SCANS, SCATTER) or name in others:
            return None
        if self.group.get(name) == self.group.get(step.buffer):
            return None
        if any(iteration(maker, read) is None for read in self.loads[name]):
            return None
        table = coordinates(maker, value.index)
        pairs = {new: old for new, old in (table or {}).items() if isinstance(old, Var)}
        if table is None or len(pairs) != len(table) or len(table) != len(loops) or set(pairs.values()) != set(loops):
            return None
        return (maker, pairs) if all(old.size is new.size for new, old in pairs.items()) else None


def _within(part: Part, var: Var, inner: Var) -> Value:
    """The part's value in terms of a loop over it alone."""
    table: Mapping[Any, Index] = {var: inner + part.low}
    return settled(rebuild(part.value, index=lambda i: i.substitute(table)))


def _homed(name: str, whole: Buffer, loops: Sequence[Var], place: Index) -> Buffer | None:
    """A buffer that is a part of another one, with a dimension for each loop; None if no strides express it."""
    strides = []
    for var in loops:
        stride = place.stride(var)
        if stride is None:
            return None
        strides.append(stride)
        place = place.substitute({var: index(0)})
    return Buffer(name, whole.dtype, tuple([v.size for v in loops]), tuple(strides), whole.device, (whole.name, place))


def placed(fused: Fused) -> Fused:
    """The same, or with parts computed where they belong, if less goes through memory."""
    placement = Placement(fused.program, fused.steps, fused.items)
    other = placement.rewritten()
    if other is None:
        return fused
    return fused.or_better(fused.again(other, replace(fused.program, buffers=placement.buffers)))
