"""Names that classes lack, checked together: one look at each class, however many classes inherit from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jitney.guards.checks import without
from jitney.guards.pool import Pool
from jitney.guards.source import Guard, Source

IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: nobody can give such a class attributes


def is_absence(guard: Guard) -> bool:
    """Does ``absences`` check this guard?"""
    return (guard.kind == "lacks_class_attr" and guard.source.is_const) or _about_one_class(guard)


def _about_one_class(guard: Guard) -> bool:
    base = guard.source.base
    in_dict = guard.kind == "disjoint" and guard.source.kind == "dict_of"
    return in_dict and base is not None and base.is_const and isinstance(base.key, type)


def absences(roots: Iterable[Source], pool: Pool) -> Iterator[str]:
    """The conditions for names that classes of certain identity lack: with their bases, or by themselves.

    With its bases, a class lacks a name if no class of its method resolution order has it. ``hasattr`` makes and drops
    an exception to say so. Instead each order is checked by identity, and each class once for all names asked of it.
    """
    names: dict[int, tuple[type, set[str]]] = {}
    for root in roots:
        if not root.is_const or not isinstance(root.key, type):
            continue
        asked = {guard.expected for guard in root.guards if is_absence(guard)}
        if asked:
            yield f"{pool.object(root.key)}.__mro__ is {pool.object(root.key.__mro__)}"
        for cls in root.key.__mro__ if asked else ():
            if not cls.__flags__ & IMMUTABLE:
                names.setdefault(id(cls), (cls, set()))[1].update(asked)
        for guard in root.step("dict_of").guards:
            if _about_one_class(guard):
                names.setdefault(id(root.key), (root.key, set()))[1].update(guard.expected)
    for cls, lacking in names.values():
        keys: Any = cls.__dict__.keys()  # a view: it shows the class as it is when asked
        yield without(pool.object(keys), lacking, pool)
