"""Rows of pairs that are computed from pairs, such as those that are rotated and put side by side again.

    for i < 32, k < 2: y[2 i + k] = where(k < 1, a[2 i] c[i] - a[2 i + 1] s[i], a[2 i] s[i] + a[2 i + 1] c[i])

A thread has both of a pair: nothing is loaded for each of them anew, and nothing chosen.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from jitney_lowering.index import Index, Var, equal, index
from jitney_lowering.ir import Kernel, Load, Nest, Reduce, Store, Value, rebuild, walk
from jitney_lowering.ir.fold import combined
from jitney_lowering.ir.operations import HALVES

FEWER = 2  # times are loads, at least


def with_pairs_whole(kernel: Kernel) -> Kernel:
    """The kernel with its rows gone through pair by pair, if that saves loads; not changed otherwise."""
    paired = {nest.loops for nest in kernel.body if _is_paired(nest) and _saves_loads(nest)}
    if not kernel.outer or len(paired) != 1:
        return kernel
    (loops,) = paired
    alike = [nest for nest in kernel.body if _are_alike(nest.loops, loops)]
    if kernel.finish or not all(map(_is_paired, alike)):
        return kernel
    return replace(kernel, body=tuple(_whole(nest) if nest in alike else nest for nest in kernel.body))


def _are_alike(some: tuple[Var, ...], others: tuple[Var, ...]) -> bool:
    return len(some) == len(others) and all(equal(a.size, b.size) for a, b in zip(some, others, strict=True))


def _is_paired(nest: Nest) -> bool:
    """Is the innermost of several loops over two, and are stores and plain reductions all that is done there?"""
    if len(nest.loops) < 2 or nest.loops[-1].size.value != 2:
        return False
    return all(
        isinstance(s, Store) or (isinstance(s, Reduce) and s.position is None and s.value.dtype not in HALVES)
        for s in nest.statements
    )


def _saves_loads(nest: Nest) -> bool:
    elements = list(_elements(nest.loops[-1]))
    before = {v for s in nest.statements for v in walk(s.value) if isinstance(v, Load)}
    values = [_at(s.value, element) for s in nest.statements for element in elements]
    after = {v for v in walk(*values) if isinstance(v, Load)}
    return 0 < len(after) * FEWER <= len(before) * len(elements)


def _elements(pair: Var) -> Iterator[dict[Any, Index]]:
    for number in range(2):
        yield {pair: index(number)}


def _at(value: Value, element: dict[Any, Index]) -> Value:
    return rebuild(value, index=lambda place: place.substitute(element))


def _whole(nest: Nest) -> Nest:
    """Statements for both elements of a pair."""
    statements: list[Store | Reduce] = []
    for s in nest.statements:
        values = [(element, _at(s.value, element)) for element in _elements(nest.loops[-1])]
        if isinstance(s, Store):
            statements += [replace(s, index=s.index.substitute(element), value=value) for element, value in values]
        else:
            assert isinstance(s, Reduce)
            total = functools.reduce(functools.partial(combined, s.kind), [value for _, value in values])
            statements.append(replace(s, value=total))
    return Nest(nest.loops[:-1], tuple(statements))
