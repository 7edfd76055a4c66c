"""Nests that go through memory backwards, turned round: a thread loads several neighbours at once, in order only.

A scan among them begins at the other end.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Any

from jitney_lowering.index import Index, Var
from jitney_lowering.ir import (
    SORT,
    Accumulate,
    Kernel,
    Load,
    Nest,
    Put,
    Reduce,
    Scan,
    Scatter,
    Statement,
    Store,
    Value,
    rebuild,
    walk,
)


class BackwardScan(Scan):
    """A scan from the last iteration of the nest to the first."""


def forwards(kernel: Kernel) -> Kernel:
    """The kernel with scans, with the nests turned round that mostly go backwards."""
    if not any(isinstance(s, Scan) for nest in kernel.body for s in nest.statements):
        return kernel
    return replace(
        kernel, body=tuple(_turned(nest) if _is_backwards(nest, kernel.buffers) else nest for nest in kernel.body)
    )


def is_backwards(nest: Nest) -> bool:
    """Does a scan of the nest begin at its end?"""
    return any(isinstance(s, BackwardScan) for s in nest.statements)


def _is_backwards(nest: Nest, buffers: Container[str]) -> bool:
    """Memory of a row is as good either way; what is in order goes one way."""
    if any(isinstance(s, Scan) and s.kind == SORT for s in nest.statements):
        return False
    places = [s.index for s in nest.statements if isinstance(s, (Store, Accumulate)) and s.buffer in buffers]
    values = [v for s in nest.statements for v in walk(s.value)]
    if any(isinstance(v, Put) for v in values):
        return False
    places += dict.fromkeys(v.index for v in values if isinstance(v, Load) and v.buffer in buffers)
    steps = [_step(place, nest.loops[-1]) for place in places] if nest.loops else []
    return sum(step < 0 for step in steps) > sum(step > 0 for step in steps)


def _step(place: Index, var: Var) -> int:
    stride = place.stride(var)
    return 0 if stride is None or stride.value is None else stride.value


def _turned(nest: Nest) -> Nest:
    table: dict[Any, Index] = {v: v.size - 1 - v for v in nest.loops}
    memo: dict[Any, Value] = {}

    def index(i: Index) -> Index:
        return i.substitute(table)

    statements: list[Statement] = []
    for s in nest.statements:
        value = rebuild(s.value, index=index, memo=memo)
        if isinstance(s, Scan):
            statements.append(BackwardScan(s.name, s.kind, value))
        elif isinstance(s, Reduce):
            statements.append(replace(s, value=value, position=None if s.position is None else index(s.position)))
        else:
            assert not isinstance(s, Scatter)
            statements.append(replace(s, index=index(s.index), value=value))
    return Nest(nest.loops, tuple(statements))
