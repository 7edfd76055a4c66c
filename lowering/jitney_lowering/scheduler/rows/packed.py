"""Reductions of numbers of which several are in one integer, such as weights of 4 bits: integer by integer.

Each integer is loaded once, and which of its numbers is meant is known: nothing is asked for each number.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from jitney_lowering.index import FloorDiv, Index, Names, Var, visit
from jitney_lowering.ir import Kernel, Load, Nest, Reduce, Value, rebuild, walk
from jitney_lowering.ir.fold import combined
from jitney_lowering.ir.operations import HALVES


def with_integers_whole(kernel: Kernel, names: Names, most: int) -> Kernel:
    """The kernel with loops over such integers instead of their numbers.

    Args:
        kernel: not changed.
        names: for new variables.
        most: numbers in an integer.
    """
    body = tuple(_whole(nest, names, most) for nest in kernel.body)
    return kernel if body == kernel.body else replace(kernel, body=body)


def _whole(nest: Nest, names: Names, most: int) -> Nest:
    reductions = [s for s in nest.statements if isinstance(s, Reduce) and s.position is None]
    if len(reductions) < len(nest.statements) or any(s.value.dtype in HALVES for s in reductions):
        return nest
    found = {each for s in reductions for v in walk(s.value) for each in _packed(v, nest.loops, most)}
    if len(found) != 1:
        return nest
    ((var, count),) = found
    assert var.size.value is not None
    outer = names.var(var.size.value // count, "v")
    loops = tuple(outer if v is var else v for v in nest.loops)
    return Nest(loops, tuple(replace(s, value=_together(s, var, outer, count)) for s in reductions))


def _packed(value: Value, loops: tuple[Var, ...], most: int) -> list[tuple[Var, int]]:
    """Along which loops an integer is loaded several times one after the other, and how often."""
    if not isinstance(value, Load) or value.dtype.is_floating_point or value.indirect or value.mask is not None:
        return []
    found = []
    for node in visit(value.index):
        if isinstance(node, FloorDiv) and isinstance(node.a, Var) and node.a in loops:
            size, count = node.a.size.value, node.b.value
            if size is not None and count is not None and 1 < count <= most and size % count == 0:
                found.append((node.a, count))
    return found


def _together(s: Reduce, var: Var, outer: Var, count: int) -> Value:
    """What is reduced of all numbers of an integer."""

    def one(number: int) -> Value:
        there = outer * count + number
        return rebuild(s.value, index=lambda place: _at(place, var, there))

    return functools.reduce(lambda a, b: combined(s.kind, a, b), map(one, range(count)))


def _at(place: Index, var: Var, there: Index) -> Index:
    return place.substitute({var: there}) if var in place.atoms else place
