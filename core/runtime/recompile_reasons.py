"""Why a compiled entry does not hold for a call: the guard that failed, and what it found."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from jitney._util.generated_code import variable
from jitney.capture.builtin_iterators import item_ahead, parts
from jitney.capture.numpy.memory import FETCHES
from jitney.guards import Pool, first_failure, pristine
from jitney.guards.condition import first_unmet
from jitney.guards.source import item_of
from jitney.guards.stored_guards import first_failing
from jitney.guards.tensors import tensor_facts
from jitney.runtime.entry import Entry
from jitney.torch_compat.subclasses import plain

UNKNOWN = "a tensor's metadata, which values are one object, a class's bases, or torch's global state"
RecompileReason = tuple[str, str, str]  # the guard, what it found, the user's line (both maybe empty)


def in_guards(arguments: Mapping[str, Any], cells: tuple[Any, ...] = ()) -> dict[str, Any]:
    """The names that guards see, for a call with these arguments."""
    return {
        **{variable(name): value for name, value in arguments.items()},
        **{f"_cell{i}": c for i, c in enumerate(cells)},
        "_parts": parts,
        "_ahead": item_ahead,
        "_referent": weakref.ref.__call__,
        "_item_of": item_of,
        **FETCHES,
        "_plain": plain,
    }


def recompile_reason(entry: Entry, arguments: Mapping[str, Any], cells: tuple[Any, ...]) -> RecompileReason:
    """Why an entry does not hold for a call with these arguments; ``UNKNOWN`` if no single guard says it."""
    scope = in_guards(arguments, cells)
    failure = first_failure(entry.emitted.guards if entry.emitted else (), scope)
    if failure is not None:
        guard, found = failure
        line = f"{guard.origin.filename}:{guard.origin.lineno}" if guard.origin is not None else ""
        return guard.text, str(found), line
    if entry.emitted is None:
        return first_failing(json.loads(entry.report), entry.function.__globals__, scope) or (UNKNOWN, "", "")
    several = (
        _tensor_failure(entry, scope)
        or first_unmet(entry.emitted.conditions, scope)
        or _comparison_failure(entry.emitted.comparisons, scope)
    )
    return *(several or (UNKNOWN, "")), ""


def recompile_reasons(
    entries: Iterable[Entry], arguments: Mapping[str, Any], cells: tuple[Any, ...]
) -> list[RecompileReason] | None:
    """Why each entry does not hold; None if one may hold, or there are none."""
    reasons = [recompile_reason(entry, arguments, cells) for entry in entries]
    return None if not reasons or any(reason[0] == UNKNOWN for reason in reasons) else reasons


def _comparison_failure(comparisons: Iterable[Any], scope: dict[str, Any]) -> tuple[str, str] | None:
    """Which comparison of numbers on the host comes to something else: what it is computed of."""
    pool = Pool({**scope, "_b": pristine})
    for function, sources, answer in comparisons:
        try:
            values = [eval(source.path(pool), pool.namespace) for source in sources]
        except Exception:
            continue
        if function(*values) is not answer:
            failure: tuple[str, str] = function.failure(", ".join(source.name for source in sources), values, answer)
            return failure
    return None


def _tensor_failure(entry: Entry, scope: dict[str, Any]) -> tuple[str, str] | None:
    """Which tensor's metadata changed: what it was, what it is."""
    pool = Pool({**scope, "_b": pristine})
    for source, facts, sizes in entry.emitted.namespace.get("_facts", ()) if entry.emitted else ():
        try:
            value = eval(source.path(pool), pool.namespace)
        except Exception as error:
            return f"{source.name}: {type(error).__name__}", ""
        if tensor_facts(value, sizes) != facts:
            return f"{source.name} is {facts}", tensor_facts(value)
    return None
