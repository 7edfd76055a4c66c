"""Nested loops as one range of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from jitney_lowering.index.expr import Index, Var, index


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
