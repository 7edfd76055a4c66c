"""How much memory a program needs at a time, before there is a plan: to choose between groupings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Extern, Program, Strided
from jitney_lowering.scheduler.group import Group
from jitney_lowering.scheduler.memory.in_place import root
from jitney_lowering.scheduler.size_guess import guess


def peak(
    program: Program, items: Sequence[Group | Kernel | Extern], shared: Mapping[str, str] = MappingProxyType({})
) -> int:
    """Bytes of temporaries and results that live at a time, at most; sizes are guesses.

    Buffers share no memory but those of ``shared``, which lie in that of others: buffer -> the other one.
    """
    kept = {o.buffer for o in program.outputs if isinstance(o, Strided)} | {check[0] for check in program.checks}
    read: dict[str, int] = {}
    for number, item in enumerate(items):
        for name in item.reads:
            read[name] = number
    inputs = {name for name in program.inputs if isinstance(name, str)}
    spans: dict[str, tuple[int, int]] = {}
    for number, item in enumerate(items):
        for name in _stored(item, read, kept, program):
            where = _owner(name, program, shared)
            if where in inputs:
                continue
            last = len(items) if name in kept or where in kept else max(read.get(name, number), number)
            first, before = spans.get(where, (number, last))
            spans[where] = first, max(before, last, read.get(where, 0))
    changes = [0] * (len(items) + 2)
    for name, (first, last) in spans.items():
        size = guess(program.buffers[name].extent) * program.buffers[name].dtype.itemsize
        changes[first] += size
        changes[last + 1] -= size
    most = now = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most


def _owner(name: str, program: Program, shared: Mapping[str, str]) -> str:
    """Who had the memory first in which a buffer lies."""
    where = root(name, program.buffers)
    while where in shared and shared[where] != where:
        where = root(shared[where], program.buffers)
    return where


def _stored(item: Group | Kernel | Extern, read: dict[str, int], kept: set[str], program: Program) -> set[str]:
    """What the item puts into new memory: not what only the group itself reads."""
    if isinstance(item, Extern):
        return {name for name in item.buffers if name is not None}
    if isinstance(item, Kernel):
        return set(item.writes.difference(program.inputs))
    return {n for n in item.makers if n in read or n in kept or program.buffers[n].home is not None}
