"""What a row costs whose elements are lanes, and what it costs where rows are: estimates, in operations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from jitney_lowering.index import Index, Names, Var, index
from jitney_lowering.ir.kernel import Accumulate, Kernel, Nest, Statement, Store
from jitney_lowering.ir.values import Load, Value, cost, cost_inside, rebuild, walk
from jitney_lowering.policy import Policy
from jitney_lowering.scheduler.rows.blocks import VECTOR, divisor

Written = Sequence[tuple[Sequence[Statement], Sequence[Var]]]
"""A row's statements, with their loops over its elements."""


class Costs(Protocol):
    """Of one machine."""

    @property
    def longest(self) -> int:
        """Elements of a row that is written out, at most."""

    @property
    def inner(self) -> bool:
        """Are loops within a row written out, too?"""

    def has_enough(self, rows: Sequence[Var]) -> bool:
        """Are there so many rows that nothing waits for work?"""

    def is_worth(self, now: Written, then: Sequence[Statement], row: Var) -> bool:
        """Is a row faster written out?"""

    def shared(self, kernel: Kernel, names: Names) -> Kernel:
        """The kernel, with enough for all threads to do."""


def costs_of(policy: Policy) -> Costs | None:
    """None: elements are always lanes."""
    if policy.row_lanes:
        return VectorLanes(policy.short_row)
    return ThreadLanes(policy.shared_row, policy.recompute) if policy.shared_row else None


def _places(statements: Sequence[Statement]) -> Iterator[tuple[Index, int, int]]:
    """What is read and written, how often, and an element's bytes."""
    for v in walk(*(s.value for s in statements)):
        if isinstance(v, Load):
            yield v.index, 1, v.dtype.itemsize
    for s in statements:
        if isinstance(s, (Store, Accumulate)):
            yield s.index, 2 if isinstance(s, Accumulate) else 1, s.value.dtype.itemsize


# --- vectors of a CPU ------------------------------------------------------------------------------------------------

LEAST = 16  # rows that fill vectors
# In operations of a vector: of a nest; of an element that is read or written near its neighbours, and of one that is
# not. What is not faster by them stays.
NEST = 3.0
NEAR, NEAR_COST, FAR_COST = 4, 0.4, 0.9
WORTH = 1.3  # times
FEW, BLOCKS = 64, (64, 1024)  # rows below which threads want more of them; of a block, at least and at most


@dataclass(frozen=True)
class VectorLanes:
    """Lanes of vectors."""

    longest: int
    inner: bool = True

    def has_enough(self, rows: Sequence[Var]) -> bool:
        """Do they fill vectors?"""
        size = rows[-1].size.value
        return size is None or size >= LEAST

    def is_worth(self, now: Written, then: Sequence[Statement], row: Var) -> bool:
        """By the operations of vectors."""
        return sum(self._by_elements(*each) for each in now) >= WORTH * self._by_rows(then, row)

    def _by_elements(self, statements: Sequence[Statement], loops: Sequence[Var]) -> float:
        values = [s.value for s in statements]
        places = [*_places(statements)]
        work = cost(*values) + sum(times for _, times, _ in places)
        if not loops:
            return work
        length = loops[-1].size.value or 1
        rounds = math.prod(v.size.value or 1 for v in loops[:-1])
        inside = cost_inside(loops, *values) + sum(t for place, t, _ in places if not place.atoms.isdisjoint(loops))
        return NEST + inside * math.ceil(length / _lanes(statements)) * rounds + work - inside

    def _by_rows(self, statements: Sequence[Statement], row: Var) -> float:
        lanes = _lanes(statements)
        work = cost(*(s.value for s in statements)) / lanes
        for place, times, _ in _places(statements):
            apart = _apart(place, row, NEAR + 1)
            work += times * (1 / lanes if apart <= 1 else NEAR_COST if apart <= NEAR else FAR_COST)
        return work

    def shared(self, kernel: Kernel, names: Names) -> Kernel:
        """With blocks of the nest's rounds, where the outer loops are few."""
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


def _lanes(statements: Sequence[Statement]) -> int:
    return VECTOR // max((v.dtype.itemsize for v in walk(*(s.value for s in statements))), default=4)


def _apart(place: Index, row: Var, unknown: int) -> int:
    """Elements from one row's to the next one's."""
    step = place.stride(row)
    return unknown if step is None or step.value is None else abs(step.value)


# --- threads of a GPU ------------------------------------------------------------------------------------------------

THREADS = 1 << 16  # rows: a quarter of the threads that an H100 holds at once
# How much longer what lies so many elements apart takes than neighbours (measured for ``unroll``); beyond: of eight.
SPREAD = {0: 0.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.5}
FARTHEST = 5.0


@dataclass(frozen=True)
class ThreadLanes:
    """Threads: where each has an element, all of a row compute what these have in common.

    Args:
        longest, inner: see ``Costs``.
        byte: operations that take as long as a byte of memory traffic.
    """

    longest: int
    byte: float
    inner: bool = False

    def has_enough(self, rows: Sequence[Var]) -> bool:
        """Is there a row for each thread?"""
        sizes = [v.size.value for v in rows]
        return None not in sizes and math.prod(s or 0 for s in sizes) >= THREADS

    def is_worth(self, now: Written, then: Sequence[Statement], row: Var) -> bool:
        """By operations or by bytes, whichever take longer."""
        work, traffic = 0.0, 0.0
        for statements, loops in now:
            count = math.prod(v.size.value or 1 for v in loops)
            work += (1 << (count - 1).bit_length()) * cost(*(s.value for s in statements))
            for place, _, size in _places(statements):
                traffic += size * (count if not place.atoms.isdisjoint(loops) else 1)
        spread = sum(size * SPREAD.get(_apart(place, row, -1), FARTHEST) for place, _, size in _places(then))
        return max(work, traffic * self.byte) >= WORTH * max(cost(*(s.value for s in then)), spread * self.byte)

    def shared(self, kernel: Kernel, names: Names) -> Kernel:
        """As it is."""
        return kernel
