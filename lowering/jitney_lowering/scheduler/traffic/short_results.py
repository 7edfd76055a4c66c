"""Reductions with short rows of results, taken apart: forces along three axes, which read the same distances.

    f[i, c] = sum[j] d[i, j, c] * w[i, j]        p0[i] = sum[j] d[i, j, 0] * w[i, j]        (and so p1, p2)
                                                 f[i, c] = where(c < 1, p0[i], where(c < 2, p1[i], p2[i]))

The loops of each are those of what they all read, which need not be in memory then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from jitney_lowering.index import Index, Names, Var, index
from jitney_lowering.ir.loops import Buffer, Computed, Step
from jitney_lowering.ir.values import Load, Value, apply, constant, load, position, walk
from jitney_lowering.scheduler.simplify import substituted
from jitney_lowering.scheduler.traffic.fused import Fused

KINDS = frozenset({"sum", "prod", "max", "min", "any", "all"})


def with_parted_results(fused: Fused) -> Fused:
    """The same, or with reductions taken apart, if less goes through memory."""
    made = {s.buffer for s in fused.steps if isinstance(s, Computed) and s.kind == "pointwise"}
    steps: list[Step] = []
    buffers = dict(fused.program.buffers)
    for step in fused.steps:
        loop = _short_loop(step, made, fused.policy.unrolled_row) if isinstance(step, Computed) else None
        if loop is None:
            steps.append(step)
        else:
            assert isinstance(step, Computed)
            steps += _parted(step, loop, buffers, fused.names)
    if len(steps) == len(fused.steps):
        return fused
    return fused.or_better(fused.again(steps, replace(fused.program, buffers=buffers)))


def _short_loop(step: Computed, made: set[str], most: int) -> Var | None:
    """The loop of few results that all read the same elements, which the program computes."""
    if step.kind not in KINDS:
        return None
    reads = [v for v in walk(step.value) if isinstance(v, Load) and v.buffer in made and not v.indirect]
    for var in step.vars:
        if 2 <= (var.size.value or 0) <= most and any(_is_shared(read, var, step) for read in reads):
            return var
    return None


def _is_shared(read: Load, loop: Var, step: Computed) -> bool:
    atoms = read.index.atoms
    return loop not in atoms and any(v in atoms for v in step.reduced) and any(v in atoms for v in step.vars)


def _parted(step: Computed, loop: Var, buffers: dict[str, Buffer], names: Names) -> Iterator[Computed]:
    """A reduction for each iteration of the loop, and the step that puts their results where they belong."""
    whole = buffers[step.buffer]
    kept = tuple(v for v in step.vars if v is not loop)
    place, stride = index(0), index(1)
    strides: list[Index] = []
    for var in reversed(kept):
        strides.insert(0, stride)
        place, stride = place + var * stride, stride * var.size
    count = loop.size.value
    assert count is not None
    results: list[Value] = []
    for number in range(count):
        part = Buffer(
            names.name(f"{step.buffer}_p"), whole.dtype, tuple(v.size for v in kept), tuple(strides), whole.device
        )
        buffers[part.name] = part
        results.append(load(part.name, place, whole.dtype))
        fresh: Mapping[Any, Index] = {v: index(names.var(v.size)) for v in step.loops if v is not loop}
        own = replace(step, buffer=part.name, place=place)
        yield substituted(own, {**fresh, loop: index(number)}, [_only(fresh[v]) for v in step.loops if v is not loop])
    value = results[-1]
    for number in reversed(range(count - 1)):
        before = apply("lt", position(index(loop)), constant(number + 1, torch.int64))
        value = apply("where", before, results[number], value)
    order = tuple(v for v in step.loops if v not in step.reduced)
    yield replace(step, kind="pointwise", value=value, reduced=(), order=order)


def _only(expression: Index) -> Var:
    (var,) = expression.atoms
    assert isinstance(var, Var)
    return var
