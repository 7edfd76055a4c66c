"""Loops turned round, so that what reads a scan's results backwards reads each where it is made.

The gradient of a running sum is a running sum from the end: ``flip(cumsum(flip(x)))``. The scan goes through ``x``
backwards, and the second flip would wait for all of the row; with its own loop turned round it is the same iteration.
So is what the reader reads besides, once the loops that make that are turned round too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from jitney_lowering.index import Index, Var, equal
from jitney_lowering.ir.loops import SCANS, SORT, Computed, Step
from jitney_lowering.ir.values import Load, walk
from jitney_lowering.scheduler.simplify import substituted

ORDERLESS = frozenset({"pointwise", "sum", "prod", "max", "min", "any", "all"})  # kinds that may go either way
Loop = tuple[str, Var]  # the buffer of a step, and one of its loops


def turned_round(steps: Sequence[Step]) -> list[Step]:
    """The same steps, with the loops backwards that read so what scans make, directly or not."""
    nests = {step.buffer: step for step in steps if isinstance(step, Computed)}
    running = [step for step in nests.values() if step.kind in SCANS and step.kind != SORT]
    scans = [(step.buffer, var) for step in running for var in step.reduced]
    if not scans:
        return list(steps)
    beside: dict[Loop, list[tuple[bool, Loop]]] = {}
    for step in nests.values():
        for one, other, opposite in _pairs(step, nests):
            beside.setdefault(one, []).append((opposite, other))
            beside.setdefault(other, []).append((opposite, one))
    backwards = dict.fromkeys(scans, False)
    waiting = deque(scans)
    while waiting:
        loop = waiting.popleft()
        for opposite, other in sorted(beside.get(loop, ()), key=lambda pair: pair[0]):
            if other not in backwards and _goes_along(nests[other[0]], other[1]):
                backwards[other] = backwards[loop] != opposite
                waiting.append(other)
    return [_turned(step, backwards) if isinstance(step, Computed) else step for step in steps]


def _goes_along(step: Computed, loop: Var) -> bool:
    """May the step's loop be one with a scan's? Results of a reduction are all there before they are scanned."""
    return step.kind in ORDERLESS and (step.kind == "pointwise" or loop in step.reduced)


def _turned(step: Computed, backwards: dict[Loop, bool]) -> Computed:
    table: dict[Any, Index] = {v: v.size - 1 - v for v in step.loops if backwards.get((step.buffer, v))}
    return substituted(step, table, step.loops) if table else step


def _pairs(step: Computed, nests: dict[str, Computed]) -> Iterator[tuple[Loop, Loop, bool]]:
    """Loops of the step and loops of what made what it reads that go through the same elements; the other way?"""
    for read in walk(step.value):
        maker = nests.get(read.buffer) if isinstance(read, Load) and not read.indirect else None
        if maker is None or maker is step:
            continue
        assert isinstance(read, Load)
        for var in step.loops:
            stride = read.index.stride(var)
            if stride is None or stride.value == 0:
                continue
            for own in maker.loops:
                theirs = maker.place.stride(own)
                if theirs is None or not equal(own.size, var.size):
                    continue
                if equal(theirs, stride) or equal(theirs, stride * -1):
                    yield (step.buffer, var), (maker.buffer, own), not equal(theirs, stride)
