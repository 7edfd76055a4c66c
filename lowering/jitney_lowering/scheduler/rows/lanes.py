"""Short loops of a kernel written out, so that a vector's lanes are neighbouring rows.

A loop over three coordinates, or nine strikes of one path, fills few lanes, and what a row has in common is computed
without vectors. Where it pays, the statements of each of its rounds stand one after the other, and vectors go along the
loop around it. ``unroll`` and ``blocks`` decide before there is a kernel; this is for any kernel, also one that adds up
over its rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jitney_lowering.index import Index, Names, Var, index
from jitney_lowering.ir.fold import combined, folded
from jitney_lowering.ir.kernel import Accumulate, Kernel, Nest, Reduce, Scan, Scatter, Statement, Store
from jitney_lowering.ir.operations import HALVES
from jitney_lowering.ir.values import Apply, Constant, Load, Ref, Value, constant, cost, cost_inside, rebuild, walk
from jitney_lowering.policy import Policy
from jitney_lowering.scheduler.rows.blocks import VECTOR, divisor
from jitney_lowering.scheduler.rows.unroll import cells

MOST = 1500  # operations and loads that are written out
LEAST = 16  # rows that fill vectors
# Estimates, in operations of a vector: of a nest; of an element that is read or written near its neighbours, and of one
# that is not. What is not faster by them stays.
NEST = 3.0
NEAR, NEAR_COST, FAR_COST = 4, 0.4, 0.9
WORTH = 1.3  # times
FEW, BLOCKS = 64, (64, 1024)  # rows below which threads want more of them; of a block, at least and at most


class _Refused(Exception):
    """What is read of a row cannot be told."""


def along_lanes(kernel: Kernel, policy: Policy, names: Names) -> Kernel:
    """The same kernel with its short loops written out, where that is faster; for policies with ``row_lanes``.

    Args:
        kernel: not changed.
        policy: loops of more rounds than its ``short_row`` stay.
        names: for new variables.
    """
    if not policy.row_lanes or any(_has_order(s) for nest in kernel.body for s in nest.statements):
        return kernel
    whole = _one_nest(kernel, policy, names)
    if whole is not None:
        return whole
    body = tuple(_shorter(nest, policy) for nest in kernel.body)
    return replace(kernel, body=body) if body != kernel.body else kernel


def _has_order(s: Statement) -> bool:
    halves = isinstance(s, (Reduce, Accumulate)) and s.kind in ("sum", "prod") and s.value.dtype in HALVES
    return halves or isinstance(s, (Scan, Scatter)) or (isinstance(s, Reduce) and s.position is not None)


@dataclass
class _Row:
    """Statements written out.

    Args:
        own: buffers whose contents are values rather than loads: all that is stored to here.
        scratch: those of them that need no memory then.
        apart: are results of reductions values for what follows in the same row? Else they go on over other loops.
    """

    own: frozenset[str]
    scratch: frozenset[str] = frozenset()
    apart: bool = True
    memory: dict[tuple[str, Index], Value] = field(default_factory=dict)
    results: dict[Any, Value] = field(default_factory=dict)  # Ref's name -> value
    statements: list[Statement] = field(default_factory=list)

    def add(self, nest: Nest, loops: Sequence[Var]) -> None:
        """A nest's statements for every round of these loops."""
        sums: dict[tuple[str, str, Index | None], list[Value]] = {}
        for cell in cells(loops):
            for s in nest.statements:
                value = self._value(s.value, cell)
                if isinstance(s, Store):
                    self._store(s, s.index.substitute(cell), value)
                elif isinstance(s, Accumulate) and s.buffer in self.scratch:
                    key = s.buffer, s.index.substitute(cell)
                    if key not in self.memory:
                        raise _Refused
                    self.memory[key] = combined(s.kind, self.memory[key], value)
                elif isinstance(s, Accumulate):
                    sums.setdefault((s.buffer, s.kind, s.index.substitute(cell)), []).append(value)
                elif isinstance(s, Reduce):
                    sums.setdefault((s.name, s.kind, None), []).append(value)
        for (name, kind, place), values in sums.items():
            if place is None and self.apart:
                self.results[name] = folded(kind, values)
                continue
            total = functools.reduce(functools.partial(combined, kind), values)
            self.statements.append(Reduce(name, kind, total) if place is None else Accumulate(name, place, kind, total))

    def _store(self, s: Store, place: Index, value: Value) -> None:
        self.memory[s.buffer, place] = value
        if s.buffer not in self.scratch:
            self.statements.append(Store(s.buffer, place, value))

    def _value(self, value: Value, cell: Mapping[Any, Index]) -> Value:
        leaf: dict[Any, Value] = {}
        for v in walk(value):
            if isinstance(v, Ref) and v.name in self.results:
                leaf[v] = self.results[v.name]
            elif isinstance(v, Load) and v.buffer in self.own:
                leaf[v] = self._held(v, cell)
        return rebuild(value, leaf, lambda i: i.substitute(cell))

    def _held(self, read: Load, cell: Mapping[Any, Index]) -> Value:
        mask = None if read.mask is None else rebuild(read.mask, index=lambda i: i.substitute(cell))
        if isinstance(mask, Constant):
            if not mask.value:
                return constant(0, read.dtype)  # nothing is read
            mask = None
        found = self.memory.get((read.buffer, read.index.substitute(cell)))
        if found is None or mask is not None or read.indirect:
            raise _Refused
        return found


def _one_nest(kernel: Kernel, policy: Policy, names: Names) -> Kernel | None:
    """All nests of a row written out in one that goes along the rows; None if that cannot be, or is no faster."""
    if not kernel.outer or not all(_are_short(nest.loops, policy) for nest in kernel.body):
        return None
    row = kernel.outer[-1]
    if not _is_long(row) or not any(nest.loops for nest in kernel.body):
        return None
    stored = frozenset(s.buffer for nest in kernel.body for s in nest.statements if isinstance(s, Store))
    scratch = frozenset(m.name for m in kernel.scratch)
    made = _Row(stored | scratch, scratch)
    try:
        for nest in kernel.body:
            made.add(nest, nest.loops)
    except _Refused:
        return None
    if not _may_go_along(made.statements, row):
        return None
    now = sum(_by_rows(nest.statements, nest.loops) for nest in kernel.body)
    if now < WORTH * _by_lanes(made.statements, row):
        return None
    return _shared(
        replace(kernel, outer=kernel.outer[:-1], body=(Nest((row,), tuple(made.statements)),), scratch=()), names
    )


def _shared(kernel: Kernel, names: Names) -> Kernel:
    """With enough rows for threads: blocks of the nest's rounds, where the outer loops are few."""
    (nest,) = kernel.body
    (row,) = nest.loops
    outer = math.prod(v.size.value or FEW for v in kernel.outer)
    size = row.size.value
    if not kernel.outer or outer >= FEW or size is None:
        return kernel
    count = divisor(size, *BLOCKS)
    if count is None:
        return kernel
    block, inner = names.var(index(size // count), "v"), names.var(index(count), "v")
    table: dict[Any, Index] = {row: index(block) * count + inner}
    memo: dict[Any, Value] = {}

    def moved(i: Index) -> Index:
        return i.substitute(table)

    statements = []
    for s in nest.statements:
        assert isinstance(s, (Store, Accumulate))
        statements.append(replace(s, index=moved(s.index), value=rebuild(s.value, index=moved, memo=memo)))
    return replace(kernel, outer=(*kernel.outer, block), body=(Nest((inner,), tuple(statements)),))


def _shorter(nest: Nest, policy: Policy) -> Nest:
    """The nest with its innermost loop written out, or as it is."""
    if len(nest.loops) < 2 or not _are_short(nest.loops[-1:], policy) or not _is_long(nest.loops[-2]):
        return nest
    loops, last = nest.loops[:-1], nest.loops[-1:]
    made = _Row(frozenset(s.buffer for s in nest.statements if isinstance(s, Store)), apart=False)
    try:
        made.add(nest, last)
    except _Refused:
        return nest
    if not _may_go_along(made.statements, loops[-1]):
        return nest
    faster = _by_rows(nest.statements, last) >= WORTH * _by_lanes(made.statements, loops[-1])
    return Nest(loops, tuple(made.statements)) if faster else nest


def _are_short(loops: Sequence[Var], policy: Policy) -> bool:
    sizes = [v.size.value for v in loops]
    return all(size is not None for size in sizes) and math.prod(s or 0 for s in sizes) in range(
        1, policy.short_row + 1
    )


def _is_long(row: Var) -> bool:
    return row.size.value is None or row.size.value >= LEAST


def _may_go_along(statements: Sequence[Statement], row: Var) -> bool:
    """Do different rounds write to different places, or sums to one, and is it little enough to be written out?"""
    for s in statements:
        if isinstance(s, (Store, Accumulate)):
            step = s.index.stride(row)
            if step is None or step.value is None or (step.value == 0 and isinstance(s, Store)):
                return False
    return sum(isinstance(v, (Apply, Load)) for v in walk(*(s.value for s in statements))) <= MOST


# --- costs -----------------------------------------------------------------------------------------------------------


def _by_rows(statements: Sequence[Statement], loops: Sequence[Var]) -> float:
    """About how many vectors' operations a row takes, with vectors within the row."""
    values = [s.value for s in statements]
    places = [*_places(statements)]
    work = cost(*values) + sum(times for _, times in places)
    if not loops:
        return work
    length = loops[-1].size.value or 1
    rounds = math.prod(v.size.value or 1 for v in loops[:-1])
    inside = cost_inside(loops, *values) + sum(t for place, t in places if not place.atoms.isdisjoint(loops))
    return NEST + inside * math.ceil(length / _lanes(statements)) * rounds + work - inside


def _by_lanes(statements: Sequence[Statement], row: Var) -> float:
    """The same where lanes are rows."""
    lanes = _lanes(statements)
    work = cost(*(s.value for s in statements)) / lanes
    for place, times in _places(statements):
        step = place.stride(row)
        apart = NEAR + 1 if step is None or step.value is None else abs(step.value)
        work += times * (1 / lanes if apart <= 1 else NEAR_COST if apart <= NEAR else FAR_COST)
    return work


def _places(statements: Sequence[Statement]) -> Iterator[tuple[Index, int]]:
    """What is read and written, and how often."""
    for v in walk(*(s.value for s in statements)):
        if isinstance(v, Load):
            yield v.index, 1
    for s in statements:
        if isinstance(s, (Store, Accumulate)):
            yield s.index, 2 if isinstance(s, Accumulate) else 1


def _lanes(statements: Sequence[Statement]) -> int:
    return VECTOR // max((v.dtype.itemsize for v in walk(*(s.value for s in statements))), default=4)
