"""Guards as text, of a frame that comes from disk: which one fails is asked for a report, long after their capture."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from jitney.guards import pristine
from jitney.guards.checks import brief
from jitney.guards.condition import MODULES, Condition
from jitney.guards.pool import Pool
from jitney.guards.source import Guard, Source
from jitney.guards.tensors import Sizes, tensor_facts

Row = list[str]  # what is guarded; the user's line or nothing; how the value is read; what must hold of ``_value``
_NAME = re.compile(r"\b_\w+")
_GIVEN = {
    "_b", "_type", "_value", "_tensor_facts", "_parts", "_item_of", "_from_numpy", "_from_readonly", "_from_scalar",
    "_ahead", "_referent", "_plain",
}  # fmt: skip


def rows(
    guards: Iterable[Guard],
    tensors: Iterable[tuple[Source, str, Sizes]],
    namespace: Mapping[str, Any],
    known: Collection[str],
    conditions: Iterable[Condition] = (),
) -> Iterator[Row]:
    """Guards and facts about tensors, those that can be said with names that a later process knows.

    Args:
        guards: of one frame.
        tensors: what it asks of tensors, as ``tensor_facts`` tells it, and the sizes that count.
        namespace: the emitted function's.
        known: the names in it that are kept.
        conditions: between several values.
    """
    pool = Pool.over(namespace)
    for guard in guards:
        origin = f"{guard.origin.filename}:{guard.origin.lineno}" if guard.origin is not None else ""
        row = [guard.text, origin, guard.source.path(pool), guard.code("_value", pool)]
        if all(
            name in known or name in _GIVEN or name not in pool.namespace for name in _NAME.findall(row[2] + row[3])
        ):
            yield row
    for source, facts, sizes in tensors:
        code = f"_tensor_facts(_value, {sizes!r}) == {facts!r}"
        yield [f"{source.name} is {facts}", "", source.path(pool), code]
    for condition in conditions:
        paths = [source.path(pool) for source in condition.places.values()]
        if all(name in known or name in _GIVEN for path in paths for name in _NAME.findall(path)):
            path = paths[0] if len(paths) == 1 else f"({', '.join(paths)})"
            yield [condition.text, "", path, condition.of("_value")]


def first_failing(
    found: Iterable[Row], namespace: Mapping[str, Any], scope: Mapping[str, Any]
) -> tuple[str, str, str] | None:
    """The first row that does not hold in this scope: its text, what was found there, and the user's line."""
    space = {**namespace, **scope, "_b": pristine, "_type": type, "_tensor_facts": tensor_facts, **MODULES}
    for text, origin, path, code in found:
        try:
            space["_value"] = value = eval(path, space)
            if eval(code, space):
                continue
            told = tensor_facts(value) if "_tensor_facts" in code else brief(value)
        except Exception as error:  # paths and conditions may run the user's code, as guards do
            told = f"{type(error).__name__}: {error}"
        return text, told, origin
    return None
