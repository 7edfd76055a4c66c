"""Names that classes lack, checked together: one look at each class, however many classes inherit from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jitney.guards.guard import Guard, without
from jitney.guards.pool import Pool
from jitney.guards.source import Source

IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: nobody can give such a class attributes


def is_absence(guard: Guard) -> bool:
    """Does ``absences`` check this guard?"""
    return guard.kind == "lacks_class_attr" and guard.source.is_const


def absences(roots: Iterable[Source], pool: Pool) -> Iterator[str]:
    """The conditions for all ``lacks_class_attr`` guards on classes of certain identity.

    A class lacks a name if no class of its method resolution order has it. ``hasattr`` makes and drops an exception to
    say so. Instead each order is checked by identity, and each class in one of them for all names asked of it.
    """
    names: dict[int, tuple[type, set[str]]] = {}
    for root in roots:
        asked = {guard.expected for guard in root.guards if is_absence(guard)}
        if not asked:
            continue
        yield f"{pool.object(root.key)}.__mro__ is {pool.object(root.key.__mro__)}"
        for cls in root.key.__mro__:
            if not cls.__flags__ & IMMUTABLE:
                names.setdefault(id(cls), (cls, set()))[1].update(asked)
    for cls, lacking in names.values():
        keys: Any = cls.__dict__.keys()  # a view: it shows the class as it is when asked
        yield without(pool.object(keys), lacking, pool)
