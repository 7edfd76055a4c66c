"""Nested loops as one range of numbers."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from jitney_lowering.index.expr import Index, Var, index

SYMBOLIC = 64  # what an atom that is no loop counts as, and half of a loop whose size is not known


def product(loops: Iterable[Var]) -> Index:
    """How many iterations these loops have together."""
    total = index(1)
    for var in loops:
        total = total * var.size
    return total


def linear(loops: Iterable[Var]) -> Index:
    """The number of an iteration of nested loops, row-major."""
    total = index(0)
    for var in loops:
        total = total * var.size + var
    return total


def tells_apart(place: Index, loops: Sequence[Var]) -> bool:
    """Has each iteration of these loops a place of its own? Asked of places that number the loops, in any order."""
    for order in itertools.permutations(loops):
        rest = place - linear(order)
        if not any(var in rest.atoms for var in loops):
            return True
    return False


def usual_step(place: Index, var: Var) -> int | None:
    """How far apart neighbours along a loop lie, at most of its places; None if that depends on sizes.

    Of ``x // 64 * 4096 + x % 64`` it is 1, of which ``stride`` says nothing.
    """
    stride = place.stride(var)
    if stride is not None:
        return stride.value
    size = var.size.value or 2 * SYMBOLIC
    middle = {
        atom: (atom.size.value or 2 * SYMBOLIC) // 2 if isinstance(atom, Var) else SYMBOLIC for atom in place.atoms
    }
    steps: Counter[int] = Counter()
    for share in (1, 3, 5):
        at = size * share // 7
        here, there = (place.evaluate(middle | {var: n}) for n in (at, min(at + 1, size - 1)))
        steps[there - here] += 1
    return steps.most_common(1)[0][0]
