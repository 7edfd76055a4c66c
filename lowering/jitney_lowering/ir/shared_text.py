"""Statements as readable text that is no longer than what they compute: what is large and shared has a name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jitney_lowering.ir.values import Value, walk

LONG = 400  # values in a statement's text, as often as each would be written there
SMALL = 8  # values that are rather repeated than named


def shared_text(statements: Sequence[Any], spelled: Callable[[Any, Callable[[Value], str]], str]) -> Iterator[str]:
    """A line for each statement; before these, ``t0 = ...`` for what would make them long.

    Args:
        statements: each with a ``value``.
        spelled: the text of a statement; it is given what spells a value.
    """
    lengths: dict[Value, int] = {}
    readers: Counter[Value] = Counter(s.value for s in statements)
    every = list(walk(*(s.value for s in statements)))
    for v in every:
        lengths[v] = 1 + sum(lengths[p] for p in v.parts)
        readers.update(v.parts)
    names: dict[Value, str] = {}

    def text(v: Value) -> str:
        return names.get(v) or v.show(text)

    if any(lengths[s.value] > LONG for s in statements):
        for v in every:
            if lengths[v] > SMALL and readers[v] > 1:
                shown = v.show(text)
                names[v] = f"t{len(names)}"
                yield f"{names[v]} = {shown}"
    for s in statements:
        yield spelled(s, text)
