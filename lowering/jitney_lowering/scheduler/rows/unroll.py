"""Short rows written out: rows of three elements need no loops, and what a row keeps needs no memory.

A GPU has a thread for each row or for each element. Where each element computes what it reads of its row by itself, and
that costs little, all elements are alike (*flat*). Else a row's elements are statements of one nest, one after the
other, with nothing computed twice (*rows*): on a CPU always, whose vectors go along the rows then.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from jitney_lowering.index import Index, Names, Var, index
from jitney_lowering.ir.fold import folded
from jitney_lowering.ir.kernel import Kernel, Nest, Store
from jitney_lowering.ir.loops import Buffer
from jitney_lowering.ir.values import Apply, Constant, Load, Value, constant, cost, rebuild, walk
from jitney_lowering.scheduler.group import Group, Member, iterations
from jitney_lowering.scheduler.simplify import substituted

MOST = 4000  # operations and loads of a row
# Measured on an H200: with a thread for each row, rows of three elements are read and written as fast as others, those
# of four take half as long again, those of eight five times as long.
NEAR = 3
CHEAP = 96  # of an element, costs of ``OPERATIONS``: what memory leaves time for
TWICE = 1.5  # times the work of rows


class _Refused(Exception):
    """It cannot be seen which element of the row is read."""


@dataclass
class Unrolled:
    """The members of a group, written out.

    Args:
        group: of short rows; see ``Group.row``.
        values: buffer -> a place of the first row -> what is stored there, in terms of the outer loops.
        places: buffer -> of each element the place in the first row, and that in any.
    """

    group: Group
    values: dict[str, dict[Index, Value]] = field(default_factory=dict)
    places: dict[str, list[tuple[Index, Index]]] = field(default_factory=dict)

    @classmethod
    def of(cls, group: Group) -> Unrolled | None:
        """All members' values; None where they cannot be told or are too many."""
        made = cls(group)
        try:
            for member in group.members:
                made._add(member)
        except _Refused:
            return None
        return made if _size(made.every(group.makers)) <= MOST else None

    @property
    def outer(self) -> tuple[Var, ...]:
        """The loops that go through rows."""
        return self.group.spine[: self.group.depth]

    def every(self, names: Collection[str]) -> Iterator[Value]:
        """The values of these buffers' elements."""
        for name in names:
            yield from self.values[name].values()

    def _add(self, member: Member) -> None:
        step = member.step
        own = [v for v in step.vars if v not in self.outer]
        over = [v for v in step.reduced if v not in self.outer]
        found: dict[Index, Value] = {}
        places = []
        for cell in cells(own):
            values = [self.value(member, cell | rest) for rest in cells(over)]
            value = values[0] if step.kind == "pointwise" else folded(step.kind, values)
            place = step.place.substitute(cell)
            found[self.in_row(place)] = value
            places.append((self.in_row(place), place))
        if len(found) != len(places):
            raise _Refused
        self.values[step.buffer], self.places[step.buffer] = found, places

    def value(self, member: Member, table: Mapping[Any, Index], leaf: Mapping[Any, Value] | None = None) -> Value:
        """The member's value with loops replaced, and what it reads of the row put in."""
        known = {load: self.read(load, table) for load in member.loads if leaf is None or load not in leaf}
        taken: dict[Any, Value] = {load: value for load, value in known.items() if value is not None}
        return rebuild(member.step.value, {**taken, **(leaf or {})}, lambda i: i.substitute(table))

    def read(self, load: Load, table: Mapping[Any, Index]) -> Value | None:
        """What a load finds in this row; None if the group does not make it."""
        maker = self.group.makers.get(load.buffer)
        if maker is None:
            return None
        if load.indirect or load.buffer not in self.values:
            raise _Refused
        for var in self.outer:
            stride = maker.step.place.stride(var)
            if stride is None or load.index.stride(var) is not stride:
                raise _Refused
        found = self.values[load.buffer].get(self.in_row(load.index.substitute(table)))
        if found is not None:
            return found
        mask = None if load.mask is None else rebuild(load.mask, index=lambda i: i.substitute(table))
        if isinstance(mask, Constant) and not mask.value:
            return constant(0, load.dtype)  # nothing is read
        raise _Refused

    def in_row(self, place: Index) -> Index:
        """The place in the first row."""
        return place.substitute({var: index(0) for var in self.outer})


def unrolled(
    group: Group, name: str, buffers: Mapping[str, Buffer], needed: frozenset[str], names: Names
) -> Kernel | Group | None:
    """The kernel of a group of short rows, or a group without rows for the same; None if it is neither.

    Args:
        group: of short rows; see ``Group.row``. Not changed.
        name: the kernel's.
        buffers: the program's.
        needed: buffers that somebody outside of the group reads.
        names: for new variables.
    """
    made = Unrolled.of(group)
    if made is None:
        return None
    flat = None if group.policy.row_lanes else _flat(made, needed, names)
    if flat is not None and _flat_is_better(made, flat, needed):
        return flat
    return _rows(made, name, buffers, needed)


# --- a thread for each element ---------------------------------------------------------------------------------------


def _flat(made: Unrolled, needed: frozenset[str], names: Names) -> Group | None:
    """The members that somebody reads, each element by itself; None if they have not all the same loops."""
    group = made.group
    wanted = [m for m in group.members if m.step.buffer in needed]
    local = [m.step.loops[group.depth :] for m in wanted]
    sizes = {tuple(v.size for v in loops) for loops in local}
    if len(sizes) != 1 or not local[0] or not all(m.pointwise for m in wanted):
        return None
    loops = tuple(names.var(v.size, "v") for v in local[0])
    symbolic: dict[str, tuple[Index, Value]] = {}  # buffer -> the place and the value of the element
    members = []
    try:
        for member in group.members:
            mine = member.step.loops[group.depth :]
            if not member.pointwise or tuple(v.size for v in mine) not in sizes:
                continue
            table: dict[Any, Index] = dict(zip(mine, map(index, loops), strict=True))
            value = made.value(member, table, _elements(member, table, symbolic))
            symbolic[member.step.buffer] = member.step.place.substitute(table), value
            if member in wanted:
                step = substituted(member.step, table, (*made.outer, *loops))
                members.append(replace(member, step=replace(step, value=value)))
    except _Refused:
        return None
    members[0] = replace(members[0], step=replace(members[0].step, nodes=_nodes(group)))
    spine = (*made.outer, *loops)
    return replace(group, spine=spine, depth=len(spine), members=tuple(members))


def _elements(
    member: Member, table: Mapping[Any, Index], symbolic: Mapping[str, tuple[Index, Value]]
) -> dict[Any, Value]:
    """What the member reads of the same element."""
    found: dict[Any, Value] = {}
    for load in member.loads:
        if load.buffer in symbolic and not load.indirect:
            place, value = symbolic[load.buffer]
            if load.index.substitute(table) is place:
                found[load] = value
    return found


def _flat_is_better(made: Unrolled, flat: Group, needed: frozenset[str]) -> bool:
    """Is computing for each element what a row has in common no more than memory leaves time for?"""
    length = iterations(flat.spine[made.group.depth :]) or 1
    if length <= NEAR:
        return False
    alone = _work([m.step.value for m in flat.members])
    return alone <= max(CHEAP, TWICE * _work(made.every(needed)) / length)


# --- a thread for each row -------------------------------------------------------------------------------------------


def _rows(made: Unrolled, name: str, buffers: Mapping[str, Buffer], needed: frozenset[str]) -> Kernel:
    """One nest over the rows with a statement for each element."""
    group, outer = made.group, made.outer
    statements = [
        Store(m.step.buffer, place, made.values[m.step.buffer][first])
        for m in group.members
        if m.step.buffer in needed
        for first, place in made.places[m.step.buffer]
    ]
    kernel = Kernel(name, outer[:-1], (Nest(outer[-1:], tuple(statements)),), {}, nodes=_nodes(group))
    for s in statements:
        kernel.buffers[s.buffer] = buffers[s.buffer].dtype
        for v in walk(s.value):
            if isinstance(v, Load):
                kernel.buffers[v.buffer] = v.dtype
    return kernel


def _nodes(group: Group) -> tuple[fx.Node, ...]:
    return tuple(dict.fromkeys(n for m in group.members for n in m.step.nodes))


# --- costs -----------------------------------------------------------------------------------------------------------


def cells(loops: Sequence[Var]) -> Iterator[dict[Any, Index]]:
    """Every iteration of these loops, in their order."""
    for numbers in itertools.product(*(range(v.size.value or 0) for v in loops)):
        yield dict(zip(loops, map(index, numbers), strict=True))


def _size(values: Iterator[Value]) -> int:
    return sum(isinstance(v, (Apply, Load)) for v in walk(*values))


def _work(values: Iterable[Value]) -> int:
    roots = list(values)
    return cost(*roots) + sum(isinstance(v, Load) for v in walk(*roots))
