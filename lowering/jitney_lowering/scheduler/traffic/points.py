"""Loads where a mask leaves one value of a loop's variable: read at the place of the loop, as others read it.

``field[..., 4] += source`` reads ``field`` at 4 where the loop's variable is 4, and at the variable elsewhere. In each
iteration these are the same element, so what makes the field and what changes it may be one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from jitney_lowering.index import Index, Var, equal
from jitney_lowering.ir.loops import Computed
from jitney_lowering.ir.values import Load, Value, load, rebuild, walk
from jitney_lowering.scheduler.traffic.masks import ranges


def along_loops(step: Computed) -> Computed:
    """The step with the places of its loads written in loop variables, if that makes them equal to other places.

    What is loaded under a mask and, at the same place, without one, is loaded without.
    """
    loads = [v for v in walk(step.value) if isinstance(v, Load) and not v.indirect]
    if all(read.mask is None for read in loads):
        return step
    places: dict[str, list[Index]] = {}
    for read in loads:
        places.setdefault(read.buffer, [step.place]).append(read.index)
    everywhere = {(read.buffer, read.index) for read in loads if read.mask is None}
    leaf: dict[Any, Value] = {}
    for read in loads:
        if read.mask is not None:
            place = next(_equal_places(read, places[read.buffer]), read.index)
            mask = None if (read.buffer, place) in everywhere else read.mask
            if place is not read.index or mask is None:
                leaf[read] = load(read.buffer, place, read.dtype, mask=mask)
    return replace(step, value=rebuild(step.value, leaf)) if leaf else step


def _equal_places(read: Load, places: Sequence[Index]) -> Iterator[Index]:
    """Those that are the load's place wherever its mask is true."""
    assert read.mask is not None
    points: dict[Any, Index] = {v: low for v, (low, end) in ranges(read.mask).items() if equal(end, low + 1)}
    if points:
        here = read.index.substitute(points)
        loops = _loops(read.index)
        yield from (p for p in places if _loops(p) > loops and p.substitute(points) is here)


def _loops(place: Index) -> frozenset[Var]:
    return frozenset(a for a in place.atoms if isinstance(a, Var))
