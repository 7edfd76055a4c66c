"""Kernels run by torch, slowly: the definition that emitters are compared with.

Every nest runs over the whole grid of its loops at once, for one iteration of the outer loops after the other. Sums of
floats are made in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch

from jitney_lowering.index import Compound, FloorDiv, Index, Mod, Size, Var
from jitney_lowering.ir import (
    OPERATIONS,
    Accumulate,
    Apply,
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
    ref,
    walk,
)

Table = dict[object, "int | torch.Tensor"]


def run_kernel(kernel: Kernel, buffers: Mapping[str, torch.Tensor], sizes: Mapping[Size, int] | None = None) -> None:
    """Runs a kernel; ``buffers`` are one-dimensional, and written in place."""
    table: Table = dict(sizes or {})
    memory = dict(buffers)
    for s in kernel.scratch:
        memory[s.name] = torch.zeros(_int(s.extent, table), dtype=s.dtype)
    for p in kernel.partials:
        memory[p.name] = torch.full((_int(p.extent, table),), identity(p.kind, p.dtype), dtype=p.dtype)
    refs: dict[str, torch.Tensor] = {}
    for item in itertools.product(*(range(_int(v.size, table)) for v in kernel.outer)):
        table.update(zip(kernel.outer, item, strict=True))
        for nest in kernel.body:
            _run_nest(nest, memory, table, refs)
    for nest in kernel.finish:
        _run_nest(nest, memory, table, refs)


def identity(kind: str, dtype: torch.dtype) -> bool | int | float:
    """What a reduction of nothing gives."""
    if kind in ("sum", "any"):
        return False if dtype is torch.bool else 0
    if kind in ("prod", "all"):
        return True if dtype is torch.bool else 1
    if dtype is torch.bool:
        return kind == "min"
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    if dtype.is_floating_point:
        return float("-inf") if kind == "max" else float("inf")
    return int(limits.min if kind == "max" else limits.max)


def _run_nest(nest: Nest, memory: dict[str, torch.Tensor], outer: Table, refs: dict[str, torch.Tensor]) -> None:
    shape = [_int(v.size, outer) for v in nest.loops]
    count = 1
    for size in shape:
        count *= size
    table = dict(outer)
    number = torch.arange(count)
    for var, size in zip(reversed(nest.loops), reversed(shape), strict=True):
        table[var] = number % max(size, 1)
        number = number // max(size, 1)
    memo: dict[Value, torch.Tensor] = {}
    for s in nest.statements:
        for v in walk(s.value):
            if v not in memo:
                memo[v] = _value(v, memo, memory, table, refs, count)
        if isinstance(s, Scan):
            memo[ref(s.name, s.value.dtype)] = _running(s.kind, memo[s.value])
    for s in nest.statements:
        value = memo[s.value]
        if isinstance(s, Reduce):
            place = None if s.position is None else _index(s.position, table, count)
            refs[s.name] = reduced(s.kind, value, place)
        elif isinstance(s, Store):
            memory[s.buffer][_index(s.index, table, count)] = value
        elif isinstance(s, Accumulate):
            _accumulate(s, memory[s.buffer], _index(s.index, table, count), value)


def _value(
    v: Value,
    memo: Mapping[Value, torch.Tensor],
    memory: Mapping[str, torch.Tensor],
    table: Table,
    refs: Mapping[str, torch.Tensor],
    count: int,
) -> torch.Tensor:
    if isinstance(v, Constant):
        return torch.full((count,), v.value, dtype=v.dtype)
    if isinstance(v, Position):
        return _index(v.index, table, count).to(v.dtype)
    if isinstance(v, Ref):
        return refs[v.name].expand(count)
    if isinstance(v, Load):
        places: Table = dict(table)
        places |= {atom: memo[value].to(torch.int64) for atom, value in v.indirect}
        return memory[v.buffer][_index(v.index, places, count)]
    assert isinstance(v, Apply)
    return applied(v.op, [memo[a] for a in v.args], v.dtype)


def applied(op: str, args: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """One operation; in float16 and bfloat16 computed in float32 and rounded once."""
    meaning = OPERATIONS[op].meaning
    if op in ("cast", "bitcast"):
        return meaning(args[0], dtype)
    halves = [a.dtype in (torch.float16, torch.bfloat16) for a in args]
    wide = [a.float() if half else a for a, half in zip(args, halves, strict=True)]
    return meaning(*wide).to(dtype)


def reduced(kind: str, value: torch.Tensor, place: torch.Tensor | None) -> torch.Tensor:
    """A reduction of all elements."""
    if kind in ("argmax", "argmin"):
        assert place is not None
        best = getattr(torch, kind.removeprefix("arg"))(value.to(torch.int8) if value.dtype is torch.bool else value)
        same = value.isnan() if best.isnan() else value == best
        return place[same].min()
    if value.numel() == 0:
        return torch.tensor(identity(kind, value.dtype), dtype=value.dtype)
    wide = value.double() if value.dtype.is_floating_point else value
    if kind == "sum":
        return wide.sum(dtype=wide.dtype).to(value.dtype)
    if kind == "prod":
        return wide.prod(dtype=wide.dtype).to(value.dtype)
    return getattr(torch, {"max": "amax", "min": "amin"}.get(kind, kind))(value)


def _running(kind: str, value: torch.Tensor) -> torch.Tensor:
    wide = value.double() if value.dtype.is_floating_point else value
    if kind in ("sum", "prod"):
        return getattr(torch, f"cum{kind}")(wide, 0, dtype=wide.dtype).to(value.dtype)
    if kind == "logsumexp":
        return wide.logcumsumexp(0).to(value.dtype)
    return getattr(torch, f"cum{kind}")(value, 0).values


def _accumulate(s: Accumulate, into: torch.Tensor, places: torch.Tensor, value: torch.Tensor) -> None:
    for place in places.unique().tolist():
        both = torch.cat([into[place : place + 1], value[places == place]])
        into[place] = reduced(s.kind, both, None)


def _index(x: Index, table: Table, count: int) -> torch.Tensor:
    return torch.as_tensor(_evaluated(x, table)).expand(count)


def _int(x: Index, table: Table) -> int:
    found = _evaluated(x, table)
    assert isinstance(found, int)
    return found


def _evaluated(x: Index, table: Table) -> int | torch.Tensor:
    if isinstance(x, (Var, Size)) or x in table:
        return table[x]
    if isinstance(x, Compound):
        a, b = _evaluated(x.a, table), _evaluated(x.b, table)
        if isinstance(x, (FloorDiv, Mod)):
            return type(x).of_ints(a, b)  # type: ignore[arg-type]
        pick = torch.minimum if x.kind == "min" else torch.maximum
        made = pick(torch.as_tensor(a), torch.as_tensor(b))
        return made if made.ndim else int(made)
    total: int | torch.Tensor = x.constant
    for coef, product in x.terms:
        term: int | torch.Tensor = coef
        for factor in product:
            term = term * _evaluated(factor, table)
        total = total + term
    return total
