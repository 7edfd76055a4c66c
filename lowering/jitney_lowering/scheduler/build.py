"""From a group of steps to a kernel: which nests, what is kept in registers, what in scratch memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jitney.errors import BackendFailed
from jitney_lowering.index import Index, Names, Var, equal, index
from jitney_lowering.ir.forwarding import forward_stores
from jitney_lowering.ir.kernel import (
    Accumulate,
    Kernel,
    Nest,
    Partial,
    Reduce,
    Scan,
    Scatter,
    Scratch,
    Statement,
    Store,
)
from jitney_lowering.ir.loops import SCANS, Buffer, Computed, identity
from jitney_lowering.ir.values import (
    Load,
    Put,
    Ref,
    Value,
    apply,
    constant,
    cost,
    cost_inside,
    load,
    rebuild,
    ref,
    walk,
)
from jitney_lowering.scheduler.collapse import collapse
from jitney_lowering.scheduler.group import Group, Member, is_aligned, iterations
from jitney_lowering.scheduler.rows.blocks import blocked
from jitney_lowering.scheduler.rows.lanes import along_lanes
from jitney_lowering.scheduler.rows.unroll import unrolled
from jitney_lowering.scheduler.simplify import substituted
from jitney_lowering.scheduler.spaces import linear

SCRATCH_LIMIT = 1 << 17  # bytes a row
SHARED = 8  # work that is worth being done once for all rounds of a loop
STREAMS = 16  # places in memory at which a loop goes on at the same time
CHEAP = 3  # what costs no more is computed again in a later nest rather than kept


@dataclass
class _Nest:
    loops: tuple[Var, ...]
    statements: list[Statement] = field(default_factory=list)
    deferred: list[Statement] = field(default_factory=list)


def build(group: Group, name: str, buffers: dict[str, Buffer], needed: frozenset[str], names: Names) -> Kernel:
    """The kernel of a group.

    Args:
        group: what to do.
        name: the kernel's.
        buffers: the program's.
        needed: buffers that somebody outside of the group reads.
        names: for new variables.
    """
    if group.has_phases or any(m.step.loops != group.spine for m in group.members):
        group = collapse(group, names, group.depth)
        row, policy = group.row or group.policy.scratch_row + 1, group.policy
        made = unrolled(group, name, buffers, needed, names) if row <= policy.scratch_row else None
        if made is not None and row > policy.unrolled_row:
            usual = _built(group, name, buffers, needed, names)
            if not forward_stores(usual).scratch:
                return usual
        if isinstance(made, Kernel):
            return made
        group = _flat(made, names) if made is not None else blocked(group, names, needed)
    else:
        group = _flat(group, names)
        short = _with_short_rows(group)
        made = None if short is None else unrolled(short, name, buffers, needed, names)
        if isinstance(made, Kernel):
            return made
    return _built(group, name, buffers, needed, names)


def _built(group: Group, name: str, buffers: dict[str, Buffer], needed: frozenset[str], names: Names) -> Kernel:
    while True:
        try:
            return along_lanes(_Builder(group, name, buffers, needed, names).kernel(), group.policy, names)
        except _NeedsMemory as found:  # once more, with its results stored as soon as they are there
            needed |= {found.name}


class _NeedsMemory(Exception):
    """A reduction's results are read in a way that scratch memory does not serve."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _flat(group: Group, names: Names) -> Group:
    """Without phases the innermost loop is the nest's, all others are rows; none at all for what reduces everything."""
    group = collapse(group, names, 0)
    total = any(m.deferred and not m.step.vars for m in group.members)
    return replace(group, depth=0 if total else max(len(group.spine) - 1, 0))


def _with_short_rows(group: Group) -> Group | None:
    """The same with its innermost loops as rows, where a vector's lanes shall be rows and these are short enough."""
    policy = group.policy
    if not policy.row_lanes:
        return None
    group = _with_shared_work_outside(group)
    depth = len(group.spine)
    while depth > 1 and (iterations(group.spine[depth - 1 :]) or policy.unrolled_row + 1) <= policy.unrolled_row:
        depth -= 1
    made = replace(group, depth=depth)
    return made if depth < len(group.spine) and made.row is not None else None


def _with_shared_work_outside(group: Group) -> Group:
    """The same with a short loop innermost, such as one over colours, if much is computed that it does not change."""
    if not all(m.pointwise and m.step.loops == group.spine for m in group.members):
        return group
    values = [member.step.value for member in group.members]
    longest = min(group.policy.unrolled_row, STREAMS // max(len(values), 1))
    short = [var for var in group.spine[:-1] if 1 < (var.size.value or 0) <= longest]
    saved = {var: cost(*values) - cost_inside((var,), *values) for var in short}
    found = max(short, key=saved.__getitem__, default=None)
    if found is None or saved[found] < SHARED:
        return group
    spine = (*(v for v in group.spine if v is not found), found)
    members = tuple(replace(m, step=substituted(m.step, {}, spine)) for m in group.members)
    return replace(group, spine=spine, members=members)


class _Builder:
    def __init__(
        self, group: Group, name: str, buffers: dict[str, Buffer], needed: frozenset[str], names: Names
    ) -> None:
        self.group = group
        self.name = name
        self.buffers = buffers
        self.needed = needed
        self.names = names
        self.outer = group.spine[: group.depth]
        self.nests: list[_Nest] = []
        self.at: dict[str, int] = {}  # buffer -> its maker's nest
        self.made: dict[str, Member] = {}  # as placed: with the nest's variables
        self.values: dict[str, Value] = {}  # buffer -> what its maker stores
        self.scratch: dict[str, Scratch] = {}
        self.partials: list[Partial] = []
        self.finish: list[Nest] = []
        self.stored: dict[str, int] = {}  # buffer of a reduction -> the nest that stores its results
        self.running: set[str] = set()  # what scans are called
        self.kept: set[str] = set()  # buffers that stay in memory though only this kernel reads them

    def kernel(self) -> Kernel:
        for member in self.group.members:
            self._place(member)
        body = tuple(Nest(n.loops, tuple(n.statements)) for n in self.nests if n.statements)
        made = Kernel(
            self.name, self.outer, body, {}, tuple(self.finish), tuple(self.scratch.values()), tuple(self.partials),
            tuple(dict.fromkeys(n for m in self.group.members for n in m.step.nodes)),
        )  # fmt: skip
        own = {*self.scratch, *(p.name for p in self.partials)}
        for nest in (*made.body, *made.finish):
            for s in nest.statements:
                if isinstance(s, Store) and s.buffer not in own:
                    made.buffers[s.buffer] = s.value.dtype
                if isinstance(s, Scatter):
                    made.buffers[s.buffer] = s.value.dtype
                for v in walk(s.value):
                    if isinstance(v, (Load, Put)) and v.buffer not in own:
                        made.buffers[v.buffer] = v.dtype
        return made

    # ------------------------------------------------------------------ nests

    def _place(self, member: Member) -> None:
        local = member.step.loops[len(self.outer) :]
        earliest = 0
        for read in member.loads:
            maker = self.made.get(read.buffer)
            if maker is None:
                continue
            at = self.at[read.buffer]
            together = is_aligned(maker, member, read) or self._aligned_after_renaming(maker, member, read, local)
            earliest = max(earliest, at if together and maker.elementwise else at + 1)
            earliest = max(earliest, self.stored.get(read.buffer, -1) + 1)
        at = self._nest(local, earliest)
        table: dict[Any, Index] = {
            mine: theirs for mine, theirs in zip(local, self.nests[at].loops, strict=True) if mine is not theirs
        }
        if table:
            step = substituted(member.step, table, (*self.outer, *self.nests[at].loops))
            member = Member(step, member.number, member.deferred)
        self._add(member, at)

    def _aligned_after_renaming(self, maker: Member, member: Member, read: Load, local: Sequence[Var]) -> bool:
        """Would it read what the same iteration made, if its loops had the names of the maker's nest?"""
        theirs = maker.step.loops[len(self.outer) :]
        if not maker.elementwise or len(theirs) != len(local):
            return False
        if not all(equal(a.size, b.size) for a, b in zip(local, theirs, strict=True)):
            return False
        return read.index.substitute(dict(zip(local, theirs, strict=True))) is maker.step.place

    def _nest(self, local: tuple[Var, ...], earliest: int) -> int:
        for at in range(earliest, len(self.nests)):
            loops = self.nests[at].loops
            if len(loops) == len(local) and all(equal(a.size, b.size) for a, b in zip(loops, local, strict=True)):
                return at
        self.nests.append(_Nest(local))
        return len(self.nests) - 1

    # ------------------------------------------------------------------ members

    def _add(self, member: Member, at: int) -> None:
        step = member.step
        value = self._forwarded(member, at)
        name = step.buffer
        self.made[name], self.at[name] = member, at
        if isinstance(value, Put):
            self.nests[at].statements.append(Scatter(name, value))
        elif member.pointwise:
            self.values[name] = value
            if name in self.needed:
                self.nests[at].statements.append(Store(name, step.place, value))
        elif member.deferred:
            self._defer(member, at, value)
        elif step.kind in SCANS:
            self._scan(member, at, value)
        else:
            self._reduce(member, at, value)

    def _reduce(self, member: Member, at: int, value: Value) -> None:
        """A reduction within the row: to a register, or to scratch memory where a row has several results."""
        step, name = member.step, member.step.buffer
        if set(step.reduced).intersection(self.outer):
            raise BackendFailed(f"lowering: the rows of {self.name} go along what is reduced in {step}")
        local = [v for v in step.vars if v not in self.outer]
        if not local:
            dtype = self.buffers[name].dtype
            self.nests[at].statements.append(self._reduction(f"r_{name}", step, value))
            self.values[name] = ref(f"r_{name}", dtype)
            if name in self.needed:
                self._after(at).statements.append(Store(name, step.place, self.values[name]))
            return
        place = linear(local)
        self._want_scratch(name, _product(local))
        begin = constant(identity(step.kind, value.dtype), value.dtype)
        start = _Nest(tuple(local), [Store(_scratch(name), place, begin)])
        self.nests.insert(at, start)
        self.at = {b: n + (n >= at) for b, n in self.at.items()}
        self.stored = {b: n + (n >= at) for b, n in self.stored.items()}
        self.nests[at + 1].statements.append(Accumulate(_scratch(name), place, step.kind, value))
        if name in self.needed:
            self._store_later(name, step.place, load(_scratch(name), place, value.dtype), tuple(local), at + 2)

    def _scan(self, member: Member, at: int, value: Value) -> None:
        """Running results along the row."""
        step, name = member.step, member.step.buffer
        running = Scan(f"c_{name}", SCANS[step.kind], value)
        self.running.add(running.name)
        self.nests[at].statements.append(running)
        made = ref(running.name, value.dtype)
        dtype = self.buffers[name].dtype
        self.values[name] = made if dtype is value.dtype else apply("cast", made, dtype=dtype)
        if name in self.needed:
            self.nests[at].statements.append(Store(name, step.place, self.values[name]))

    def _defer(self, member: Member, at: int, value: Value) -> None:
        """A reduction over rows."""
        step, name = member.step, member.step.buffer
        result = f"p_{name}"
        if not step.vars and not self.outer:
            self.nests[at].statements.append(self._reduction(result, step, value))
            self.finish.append(Nest((), (Store(name, step.place, ref(result, self.buffers[name].dtype)),)))
            return
        place = linear(step.vars)
        self.partials.append(Partial(result, value.dtype, _product(step.vars), step.kind))
        local = self.nests[at].loops
        if local and not set(step.vars).intersection(local):
            self.nests[at].statements.append(self._reduction(f"r_{name}", step, value))
            self._after(at).statements.append(Accumulate(result, place, step.kind, ref(f"r_{name}", value.dtype)))
        else:
            self.nests[at].statements.append(Accumulate(result, place, step.kind, value))
        fresh = tuple(self.names.var(v.size, "v") for v in step.vars)
        table = dict(zip(step.vars, fresh, strict=True))
        store = Store(name, step.place.substitute(table), load(result, linear(fresh), value.dtype))
        self.finish.append(Nest(fresh, (store,)))

    def _reduction(self, name: str, step: Computed, value: Value) -> Reduce:
        position = linear(step.reduced) if step.kind.startswith("arg") else None
        return Reduce(name, step.kind, value, position)

    def _after(self, at: int) -> _Nest:
        """A nest without loops after this one."""
        return self.nests[self._nest((), at + 1)]

    # ------------------------------------------------------------------ what is read

    def _forwarded(self, member: Member, at: int) -> Value:
        """The member's value with what this kernel made itself taken from where it is."""
        leaf: dict[Any, Value] = {}
        for read in member.loads:
            if read.buffer in self.made and read.indirect == ():
                leaf[read] = self._source(member, at, read)
        # A load with an indirect index is put together again from the inside; buffers of the kernel are read so only
        # where they were kept in memory.
        for read in member.loads:
            if read.buffer in self.made and read.indirect:
                self._keep(read.buffer)
        return rebuild(member.step.value, leaf) if leaf else member.step.value

    def _source(self, member: Member, at: int, read: Load) -> Value:
        name = read.buffer
        maker, where = self.made[name], self.at[name]
        if not maker.elementwise:
            if not self._cells(maker):
                return self.values[name]
            inner = self._own_place(maker, read)
            if inner is None:
                self._keep(name)
                return read
            return load(_scratch(name), inner, read.dtype)
        same = read.index is maker.step.place
        if where == at and same:
            return self.values[name]
        if not maker.step.loops[len(self.outer) :] and same:  # once a row: from registers and the row's values
            return self.values[name]
        theirs, mine = maker.step.loops[len(self.outer) :], member.step.loops[len(self.outer) :]
        fits = len(theirs) == len(mine) and all(equal(a.size, b.size) for a, b in zip(theirs, mine, strict=True))
        table: dict[Any, Index] = dict(zip(theirs, mine, strict=True)) if fits else {}
        if fits and maker.step.place.substitute(table) is read.index and self._is_cheap(self.values[name]):
            return rebuild(self.values[name], index=lambda i: i.substitute(table))
        if name in self.needed or name in self.kept:
            return read
        inner = self._own_place(maker, read)
        if inner is None or not self._room(maker):
            self._keep(name)
            return read
        if _scratch(name) not in self.scratch:
            self._want_scratch(name, _product(theirs))
            place = linear(self._cells(maker))  # not in the loops' order
            kept = Store(_scratch(name), place, self.values[name])
            self.nests[where].statements.append(kept)
        return load(_scratch(name), inner, read.dtype)

    def _own_place(self, maker: Member, read: Load) -> Index | None:
        """Where in the row's own, compact memory the element is that ``read`` finds in the buffer; None if unclear."""
        local = self._cells(maker)
        inner = read.index
        for var in self.outer:
            stride = maker.step.place.stride(var)
            if stride is None or inner.stride(var) is not stride:
                return None
        rest: dict[Any, Index] = {var: index(0) for var in self.outer}
        inner, place = read.index.substitute(rest), maker.step.place.substitute(rest)
        compact = linear(local)
        if place is compact:
            return inner
        # Other strides, but the same iterations: count these.
        mine = [v for v in inner.atoms if isinstance(v, Var)]
        for order in ([v for v in local if v in mine], sorted(mine, key=str)):
            if len(order) == len(local) and all(equal(a.size, b.size) for a, b in zip(order, local, strict=True)):
                table = dict(zip(local, order, strict=True))
                if place.substitute(table) is inner:
                    return compact.substitute(table)
        return None

    def _cells(self, maker: Member) -> list[Var]:
        """The loops that number what it makes in a row."""
        found = maker.step.loops if maker.step.kind in SCANS else maker.step.vars
        return [v for v in found if v not in self.outer]

    def _is_cheap(self, value: Value) -> bool:
        loads = [v for v in walk(value) if isinstance(v, Load)]
        if any(v.indirect or v.buffer.startswith("s_") for v in loads):
            return False
        if any(isinstance(v, Ref) and v.name in self.running for v in walk(value)):
            return False
        return cost(value) <= CHEAP and len(loads) <= 2

    def _room(self, maker: Member) -> bool:
        local = maker.step.loops[len(self.outer) :]
        count = _product(local).value
        return count is not None and count * self.buffers[maker.step.buffer].dtype.itemsize <= SCRATCH_LIMIT

    def _want_scratch(self, name: str, extent: Index) -> None:
        self.scratch[_scratch(name)] = Scratch(_scratch(name), self.buffers[name].dtype, extent)

    def _keep(self, name: str) -> None:
        """The buffer stays in memory after all."""
        if name in self.needed or name in self.kept:
            return
        maker = self.made[name]
        if not maker.elementwise:
            raise _NeedsMemory(name)
        self.kept.add(name)
        self.nests[self.at[name]].statements.append(Store(name, maker.step.place, self.values[name]))

    def _store_later(self, name: str, place: Index, value: Value, local: tuple[Var, ...], earliest: int) -> None:
        """A store in a nest of these loops, which may have other variables for them."""
        at = self._nest(local, earliest)
        nest = self.nests[at]
        self.stored[name] = at
        table: dict[Any, Index] = dict(zip(local, nest.loops, strict=True))
        value = rebuild(value, index=lambda i: i.substitute(table))
        nest.statements.append(Store(name, place.substitute(table), value))


def _scratch(name: str) -> str:
    return f"s_{name}"


def _product(loops: Sequence[Var]) -> Index:
    return functools.reduce(lambda total, var: total * var.size, loops, index(1))
