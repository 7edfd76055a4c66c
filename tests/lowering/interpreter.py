"""Runs steps and kernels element by element, in Python: slow, and plain enough to be believed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from jitney_lowering.index import Index, Size, Var
from jitney_lowering.ir import (
    OPERATIONS,
    SCANS,
    Accumulate,
    Apply,
    Computed,
    Constant,
    Kernel,
    Load,
    Nest,
    Position,
    Reduce,
    Ref,
    Scan,
    Store,
    Value,
)

Memory = dict[str, torch.Tensor]
Scope = dict[Any, int]

COMBINE = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": torch.maximum,
    "min": torch.minimum,
    "any": torch.logical_or,
    "all": torch.logical_and,
}
IDENTITY = {"sum": 0, "prod": 1, "max": -(2**63), "min": 2**63 - 1, "any": False, "all": True}


def evaluate(value: Value, scope: Scope, memory: Memory, refs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """One element."""
    if isinstance(value, Constant):
        return torch.tensor(value.value, dtype=value.dtype)
    if isinstance(value, Position):
        return torch.tensor(value.index.evaluate(scope), dtype=value.dtype)
    if isinstance(value, Ref):
        return refs[value.name]
    if isinstance(value, Load):
        inner = scope | {atom: int(evaluate(v, scope, memory, refs)) for atom, v in value.indirect}
        place = value.index.evaluate(inner)
        assert 0 <= place < memory[value.buffer].numel(), f"{value} reads outside of its buffer"
        return memory[value.buffer][place].clone()
    assert isinstance(value, Apply)
    parts = [evaluate(p, scope, memory, refs) for p in value.args]
    if value.op in ("cast", "bitcast"):
        return OPERATIONS[value.op].meaning(*parts, dtype=value.dtype)
    return OPERATIONS[value.op].meaning(*parts).to(value.dtype)


def spaces(loops: Sequence[Var], scope: Scope) -> Any:
    """All iterations of nested loops."""
    for point in itertools.product(*(range(v.size.evaluate(scope)) for v in loops)):
        yield scope | dict(zip(loops, point, strict=True))


def start(kind: str, dtype: torch.dtype) -> torch.Tensor:
    """What a reduction begins with."""
    value = IDENTITY[kind]
    if dtype.is_floating_point and kind in ("max", "min"):
        value = -float("inf") if kind == "max" else float("inf")
    return torch.tensor(value, dtype=dtype)


def run_step(step: Computed, memory: Memory, sizes: Scope) -> None:
    """As the step's docstring says, loop by loop."""
    for outer in spaces(step.vars, sizes):
        if step.kind in SCANS:
            total = start(SCANS[step.kind], step.value.dtype)
            for inner in spaces(step.reduced, outer):
                total = COMBINE[SCANS[step.kind]](total, evaluate(step.value, inner, memory, {}))
                memory[step.buffer][step.place.evaluate(inner)] = total
            continue
        place = step.place.evaluate(outer)
        if step.kind == "pointwise":
            memory[step.buffer][place] = evaluate(step.value, outer, memory, {})
            continue
        values = [evaluate(step.value, inner, memory, {}) for inner in spaces(step.reduced, outer)]
        memory[step.buffer][place] = _reduced(step.kind, values, step.value.dtype)


def _reduced(kind: str, values: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    if kind.startswith("arg"):
        return (torch.argmax if kind == "argmax" else torch.argmin)(torch.stack(values))
    total = start(kind, dtype)
    for value in values:
        total = COMBINE[kind](total, value)
    return total


def run_kernel(kernel: Kernel, memory: Memory, sizes: Scope, order: Any = list) -> None:
    """Rows in the order that ``order`` gives them, scratch memory full of rubbish for each."""
    own = dict(memory)
    for partial in kernel.partials:
        own[partial.name] = start(partial.kind, partial.dtype).repeat(partial.extent.evaluate(sizes))
    whole: dict[str, torch.Tensor] = {}
    for row in order(list(spaces(kernel.outer, sizes))):
        for scratch in kernel.scratch:
            own[scratch.name] = torch.full((scratch.extent.evaluate(sizes),), 77).to(scratch.dtype)
        refs: dict[str, torch.Tensor] = {}
        for nest in kernel.body:
            run_nest(nest, own, row, refs, sizes)
        if not kernel.outer:
            whole = refs
    for nest in kernel.finish:
        run_nest(nest, own, sizes, whole, sizes)


def run_nest(nest: Nest, memory: Memory, scope: Scope, refs: dict[str, torch.Tensor], sizes: Scope) -> None:
    """What it reduces is known after it."""
    known = dict(refs)
    collected: dict[str, list[Any]] = {s.name: [] for s in nest.statements if isinstance(s, Reduce)}
    running = {s.name: start(s.kind, s.value.dtype) for s in nest.statements if isinstance(s, Scan)}
    for point in spaces(nest.loops, scope):
        values = []
        for s in nest.statements:
            values.append(evaluate(s.value, point, memory, known | running))
            if isinstance(s, Scan):
                running[s.name] = COMBINE[s.kind](running[s.name], values[-1])
        for s, value in zip(nest.statements, values, strict=True):
            if isinstance(s, Store):
                memory[s.buffer][s.index.evaluate(point)] = value
            elif isinstance(s, Accumulate):
                place = s.index.evaluate(point)
                memory[s.buffer][place] = COMBINE[s.kind](memory[s.buffer][place], value)
            elif isinstance(s, Reduce):
                at = s.position.evaluate(point) if s.position is not None else None
                collected[s.name].append((value, at))
    for s in nest.statements:
        if isinstance(s, Reduce):
            refs[s.name] = _result(s, collected[s.name])


def _result(reduce: Reduce, found: list[tuple[torch.Tensor, int | None]]) -> torch.Tensor:
    values = [v for v, _ in found]
    if reduce.position is None:
        return _reduced(reduce.kind, values, reduce.value.dtype)
    ordered = sorted(found, key=lambda pair: pair[1] or 0)
    best = int(_reduced(reduce.kind, [v for v, _ in ordered], reduce.value.dtype))
    return torch.tensor(ordered[best][1])


def extents(buffers: Mapping[str, Any], sizes: Scope) -> dict[str, int]:
    """Elements of each buffer."""
    return {name: buffer.extent.evaluate(sizes) for name, buffer in buffers.items()}


__all__ = ["Index", "Memory", "Scope", "Size", "extents", "run_kernel", "run_step"]
