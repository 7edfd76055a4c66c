"""Before fusion: loops of one iteration go, equal steps become one, and what nobody reads goes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from jitney_lowering.index import Index, Names, Var, index
from jitney_lowering.ir.loops import POINTWISE, Computed, Extern, Program, Step, Strided, identity
from jitney_lowering.ir.values import constant, rebuild
from jitney_lowering.scheduler.traffic.points import along_loops


def clean(program: Program) -> list[Step]:
    """The program's steps, fewer and simpler, in the same order."""
    steps = [along_loops(_without_unit_loops(s)) if isinstance(s, Computed) else s for s in program.steps]
    steps = [s for s in steps if isinstance(s, Extern) or not any(v.size.value == 0 for v in s.vars)]
    return without_dead(_without_twins(steps, program), program)


def substituted(step: Computed, table: Mapping[Any, Index], loops: Sequence[Var] | None = None) -> Computed:
    """The step with its loop variables replaced.

    Args:
        step: what to rewrite.
        table: a variable -> what stands for it.
        loops: all loops of the result, outermost first; without it those of the step that are not in ``table``. A loop
            is a reduced one if it stands for a reduced one.
    """
    reduced = set(step.reduced) - table.keys()
    for var in step.reduced:
        if var in table:
            reduced |= {a for a in table[var].atoms if isinstance(a, Var)}
    order = tuple(loops) if loops is not None else tuple(v for v in step.loops if v not in table)
    return replace(
        step,
        vars=tuple(v for v in order if v not in reduced),
        reduced=tuple(v for v in order if v in reduced),
        place=step.place.substitute(table),
        value=rebuild(step.value, index=lambda i: i.substitute(table)) if table else step.value,
        order=order,
    )


def _without_unit_loops(step: Computed) -> Computed:
    if step.kind.startswith("arg"):  # one result after the other, and positions count in the order of dimensions
        step = substituted(step, {}, (*step.vars, *step.reduced))
    units = {v: index(0) for v in step.loops if v.size.value == 1}
    step = substituted(step, units) if units else step
    if step.kind in POINTWISE:
        return step
    if any(v.size.value == 0 for v in step.reduced):
        order = tuple(v for v in step.loops if v not in step.reduced)
        value = constant(identity(step.kind, step.value.dtype), step.value.dtype)
        return replace(step, kind="pointwise", value=value, reduced=(), order=order)
    if step.reduced:
        return step
    value = constant(0, torch.int64) if step.kind.startswith("arg") else step.value
    return replace(step, kind="pointwise", value=value)


def _without_twins(steps: Sequence[Step], program: Program) -> list[Step]:
    """A computed buffer that holds what an earlier one holds is that one, if it is no output of the graph."""
    outputs = {o.buffer for o in program.outputs if isinstance(o, Strided)} | {c[0] for c in program.checks}
    names = Names()
    canonical = [names.var(1 << 62, "c") for _ in range(64)]
    changing = frozenset().union(*(s.written for s in steps if isinstance(s, Extern)))
    first: dict[Any, str] = {}
    renamed: dict[str, str] = {}
    result: list[Step] = []
    for step in steps:
        step = _renamed(step, renamed)
        if isinstance(step, Extern) or len(step.loops) > len(canonical) or step.reads & changing:
            result.append(step)
            continue
        if program.buffers[step.buffer].home is not None:  # it must be there, and what is around it may change
            result.append(step)
            continue
        table = dict(zip(step.loops, canonical, strict=False))
        sizes = tuple((v.size, v in step.reduced) for v in step.loops)
        value = rebuild(step.value, index=functools.partial(_substitute, table))
        key = (step.kind, sizes, value, step.place.substitute(table), program.buffers[step.buffer].dtype)
        twin = first.setdefault(key, step.buffer)
        if twin != step.buffer and step.buffer not in outputs:
            renamed[step.buffer] = twin
        else:
            result.append(step)
    return result


def _substitute(table: Mapping[Any, Index], index: Index) -> Index:
    return index.substitute(table)


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    if not names or not step.reads & names.keys():
        return step
    if isinstance(step, Computed):
        value = rebuild(step.value, buffers=names)
        return replace(step, value=value)
    return replace(step, args=_renamed_in(step.args, names), kwargs=_renamed_in(dict(step.kwargs), names))


def _renamed_in(arguments: Any, names: Mapping[str, str]) -> Any:
    if isinstance(arguments, Strided):
        return replace(arguments, buffer=names.get(arguments.buffer, arguments.buffer))
    if isinstance(arguments, Mapping):
        return {k: _renamed_in(v, names) for k, v in arguments.items()}
    if isinstance(arguments, (tuple, list)):
        return type(arguments)(_renamed_in(a, names) for a in arguments)
    return arguments


def without_dead(steps: Sequence[Step], program: Program) -> list[Step]:
    """An extern call that draws random numbers, writes or returns nothing stays: eager made it too."""
    wanted = {o.buffer for o in program.outputs if isinstance(o, Strided)} | {c[0] for c in program.checks}
    result: list[Step] = []
    for step in reversed(steps):
        keeps = isinstance(step, Extern) and step.has_effect
        if keeps or step.writes & wanted:
            wanted |= step.reads
            result.append(step)
    return result[::-1]
