"""Short loops of a kernel written out, so that a vector's lanes are neighbouring rows.

A loop over three coordinates, or nine strikes of one path, fills few lanes, and what a row has in common is computed
without vectors, or by each thread of a GPU again. Where it pays (``lane_costs.py``), the statements of each of its
rounds stand one after the other, and vectors or threads go along the loop around it. ``unroll`` and ``blocks`` decide
before there is a kernel; this is for any kernel, also one that adds up over its rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jitney_lowering.index import Index, Names, Var
from jitney_lowering.ir.fold import combined, folded
from jitney_lowering.ir.kernel import Accumulate, Kernel, Nest, Reduce, Scan, Scatter, Statement, Store
from jitney_lowering.ir.operations import HALVES
from jitney_lowering.ir.values import Apply, Constant, Load, Ref, Value, constant, rebuild, walk
from jitney_lowering.policy import Policy
from jitney_lowering.scheduler.rows.lane_costs import Costs, costs_of
from jitney_lowering.scheduler.rows.unroll import cells

MOST = 1500  # operations and loads that are written out


class _Refused(Exception):
    """What is read of a row cannot be told."""


def along_lanes(kernel: Kernel, policy: Policy, names: Names) -> Kernel:
    """The same kernel with its short loops written out, where that is faster; for policies with lanes that are rows.

    Args:
        kernel: not changed.
        policy: loops of more rounds than its ``short_row`` (``shared_row``) stay.
        names: for new variables.
    """
    costs = costs_of(policy)
    if costs is None or any(_has_order(s) for nest in kernel.body for s in nest.statements):
        return kernel
    whole = _one_nest(kernel, costs, names)
    if whole is not None:
        return whole
    if not costs.inner:
        return kernel
    body = tuple(_shorter(nest, costs) for nest in kernel.body)
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


def _one_nest(kernel: Kernel, costs: Costs, names: Names) -> Kernel | None:
    """All nests of a row written out in one that goes along the rows; None if that cannot be, or is no faster."""
    if not kernel.outer or not all(_are_short(nest.loops, costs) for nest in kernel.body):
        return None
    row = kernel.outer[-1]
    if not costs.has_enough(kernel.outer) or not any(nest.loops for nest in kernel.body):
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
    if not costs.is_worth([(nest.statements, nest.loops) for nest in kernel.body], made.statements, row):
        return None
    body = (Nest((row,), tuple(made.statements)),)
    return costs.shared(replace(kernel, outer=kernel.outer[:-1], body=body, scratch=()), names)


def _shorter(nest: Nest, costs: Costs) -> Nest:
    """The nest with its innermost loop written out, or as it is."""
    if len(nest.loops) < 2 or not _are_short(nest.loops[-1:], costs) or not costs.has_enough(nest.loops[-2:-1]):
        return nest
    loops, last = nest.loops[:-1], nest.loops[-1:]
    made = _Row(frozenset(s.buffer for s in nest.statements if isinstance(s, Store)), apart=False)
    try:
        made.add(nest, last)
    except _Refused:
        return nest
    if not _may_go_along(made.statements, loops[-1]):
        return nest
    faster = costs.is_worth([(nest.statements, last)], made.statements, loops[-1])
    return Nest(loops, tuple(made.statements)) if faster else nest


def _are_short(loops: Sequence[Var], costs: Costs) -> bool:
    sizes = [v.size.value for v in loops]
    return all(size is not None for size in sizes) and math.prod(s or 0 for s in sizes) in range(1, costs.longest + 1)


def _may_go_along(statements: Sequence[Statement], row: Var) -> bool:
    """Do different rounds write to different places, or sums to one, and is it little enough to be written out?"""
    for s in statements:
        if isinstance(s, (Store, Accumulate)):
            step = s.index.stride(row)
            if step is None or step.value is None or (step.value == 0 and isinstance(s, Store)):
                return False
    return sum(isinstance(v, (Apply, Load)) for v in walk(*(s.value for s in statements))) <= MOST
