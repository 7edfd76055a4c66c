"""Do two loop nests go over the same space? Their common outer loops, after splitting loops where that helps.

And which iteration of a step fills a place in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jitney_lowering.index import Index, Names, Var, equal, index, linear
from jitney_lowering.ir.loops import Computed
from jitney_lowering.scheduler.simplify import substituted
from jitney_lowering.scheduler.size_guess import guess


@dataclass(frozen=True)
class Match:
    """The common prefix of two lists of loops.

    Args:
        spine: the first list's loops, some of them split.
        first: what stands for the loops of the first list that were split.
        second: what stands for the loops of the second list that were matched.
        count: how many loops of ``spine`` were matched.
        rest: the loops of the second list after those.
    """

    spine: tuple[Var, ...]
    first: dict[Var, Index]
    second: dict[Var, Index]
    count: int
    rest: tuple[Var, ...]


def match(first: Sequence[Var], second: Sequence[Var], names: Names) -> Match:
    """Pair the loops of two nests from the outside in, block by block of equal products of sizes."""
    spine: list[Var] = []
    ones: dict[Var, Index] = {}
    others: dict[Var, Index] = {}
    i = j = 0
    while i < len(first) and j < len(second):
        block = _block(first, i, second, j)
        if block is None:
            break
        a, b = block
        if b - j == 1:
            spine += first[i:a]
            others[second[j]] = linear(first[i:a])
        else:
            # A loop of one round is no part of what stands for the split one.
            new = {v: names.var(v.size, "v") for v in second[j:b] if v.size != 1}
            spine += new.values()
            ones[first[i]] = linear([*new.values()])
            others |= {v: index(new.get(v, 0)) for v in second[j:b]}
        i, j = a, b
    return Match((*spine, *first[i:]), ones, others, len(spine), tuple(second[j:]))


def _block(first: Sequence[Var], i: int, second: Sequence[Var], j: int) -> tuple[int, int] | None:
    """The shortest blocks from ``i`` and ``j`` with equal products, one of them a single loop; None without such."""
    if equal(first[i].size, second[j].size):
        return i + 1, j + 1
    for one, at, many, start, swapped in ((first[i], i, second, j, False), (second[j], j, first, i, True)):
        product = index(1)
        for end in range(start, len(many)):
            product = product * many[end].size
            if equal(product, one.size):
                return (end + 1, at + 1) if swapped else (at + 1, end + 1)
    return None


def coordinates(step: Computed, place: Index) -> dict[Any, Index] | None:
    """Which iteration of a pointwise step fills the place; None if that is not clear."""
    strides = {var: step.place.stride(var) for var in step.vars}
    known = [(stride, var) for var, stride in strides.items() if stride is not None]
    if len(known) < len(strides):
        return None
    turned: dict[Any, Index] = {var: var.size - 1 - var for stride, var in known if guess(stride) < 0}
    if turned:  # the same step, the other way
        found = coordinates(substituted(step, turned, step.loops), place)
        return found and {var: var.size - 1 - at if var in turned else at for var, at in found.items()}
    table: dict[Any, Index] = {}
    for stride, var in sorted(known, key=lambda pair: -guess(pair[0])):
        if guess(stride) <= 0:
            return None
        table[var] = place // stride % var.size
    return table if step.place.substitute(table) is place else None
