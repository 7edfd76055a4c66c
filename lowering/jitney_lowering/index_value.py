"""Index expressions as values: what depends on where an element is, at a place that is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch

from jitney_lowering.index import FloorDiv, Index, Max, Min, Mod, Opaque, from_terms
from jitney_lowering.ir.values import Position, Value, apply, constant, position, rebuild, walk

_OPERATIONS: dict[type[Index], str] = {FloorDiv: "floordiv", Mod: "remainder", Min: "minimum", Max: "maximum"}


def index_value(i: Index, atoms: Mapping[Opaque, Value]) -> Value:
    """The expression as a number of int64; ``atoms``: what the ``Opaque`` ones in it are."""
    if not _computed(i):
        return position(i)
    if isinstance(i, Opaque):
        return apply("cast", atoms[i], dtype=torch.int64)
    if type(i) in _OPERATIONS:
        return apply(_OPERATIONS[type(i)], *(index_value(part, atoms) for part in i.children))
    known = from_terms({product: coef for coef, product in i.terms if not any(map(_computed, product))}, i.constant)
    total: Value | None = None if known.value == 0 else position(known)
    for coef, product in i.terms:
        if any(map(_computed, product)):
            found = reduce(_times, (index_value(factor, atoms) for factor in product))
            part = found if coef == 1 else _times(found, constant(coef, torch.int64))
            total = part if total is None else apply("add", total, part)
    assert total is not None
    return total


def at_computed_place(
    value: Value, atoms: Mapping[Opaque, Value], index: Callable[[Index], Index] | None = None
) -> Value:
    """The value without positions that are computed: an emitter knows such atoms in addresses alone.

    ``index``: from an index of the value's to that at the place, by which such atoms come in.
    """
    leaf: dict[Any, Value] = {}
    for v in walk(value):
        if isinstance(v, Position) and _computed(place := index(v.index) if index else v.index):
            leaf[v] = apply("cast", index_value(place, atoms), dtype=v.dtype)
    if index is None:  # loads know theirs
        return rebuild(value, leaf) if leaf else value
    return rebuild(value, leaf, index, atoms=atoms)


def _times(a: Value, b: Value) -> Value:
    return apply("mul", a, b)


def _computed(i: Index) -> bool:
    return any(isinstance(atom, Opaque) for atom in i.atoms)
