"""One condition on one source. ``CHECKS`` is the table of conditions: how each is written in Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from traceback import FrameSummary
from typing import Any

from jitney.guards.pool import Pool
from jitney.guards.source import Source


def _equals(value: str, expected: Any, pool: Pool) -> str:
    kind = type(expected)
    if kind is float and expected != expected:
        return f"(type({value}) is float and {value} != {value})"
    if kind is float and expected == 0.0:
        return f"(type({value}) is float and repr({value}) == {repr(expected)!r})"
    name = pool.name(expected)
    return f"(type({value}) is {pool.object(kind)} and {value} == {name})"


# kind -> the condition's text, given the value's expression, what is expected, and the pool
CHECKS: dict[str, Callable[[str, Any, Pool], str]] = {
    "is": lambda v, x, pool: f"{v} is {pool.name(x)}",
    "type": lambda v, x, pool: f"type({v}) is {pool.object(x)}",
    "equals": _equals,
    "code": lambda v, x, pool: f"type({v}) is {pool.object(type(lambda: 0))} and {v}.__code__ is {pool.object(x)}",
    "len": lambda v, x, pool: f"len({v}) == {x}",
    "keys": lambda v, x, pool: f"[*{v}] == {pool.object(x)}",
    "set": lambda v, x, pool: f"{v} == {pool.object(x)}",
    "has": lambda v, x, pool: f"{pool.name(x)} in {v}",
    "lacks": lambda v, x, pool: f"{pool.name(x)} not in {v}",
    "lacks_attr": lambda v, x, pool: f"not hasattr({v}, {x!r})",
    "disjoint": lambda v, x, pool: f"{v}.keys().isdisjoint({pool.object(x)})",
    "empty": lambda v, x, pool: f"not {v}",
    "nonempty": lambda v, x, pool: f"{v}",
    "true": lambda v, x, pool: x.replace("{v}", v),
}


@dataclass(frozen=True, slots=True)
class Guard:
    """``kind`` of check on ``source`` against ``expected``; ``origin`` is the user's line that read it."""

    source: Source
    kind: str
    expected: Any
    origin: FrameSummary | None = None

    def code(self, value: str, pool: Pool) -> str:
        return CHECKS[self.kind](value, self.expected, pool)

    @property
    def text(self) -> str:
        """For people, without pool names: ``self.training is True``."""
        name = self.source.name
        if self.kind == "disjoint":
            return f"{name} has none of {', '.join(sorted(map(str, self.expected)))}"
        if self.kind == "type":
            return f"type({name}) is {self.expected.__qualname__}"
        if self.kind == "code":
            return f"{name} is a function with the code of {self.expected.co_qualname}"
        if self.kind in ("is", "equals"):
            described = getattr(self.expected, "__qualname__", None) or repr(self.expected)
            return f"{name} {'is' if self.kind == 'is' else '=='} {described}"
        if self.kind == "keys":
            return f"[*{name}] == {self.expected!r}"
        if self.kind == "set":
            return f"{name} == {self.expected!r}"
        return CHECKS[self.kind](name, self.expected, Pool())

    def found(self, value: Any) -> str:
        """What was there instead, for the recompile log."""
        if self.kind == "type":
            return f"type {type(value).__qualname__}"
        if self.kind == "len":
            return f"length {len(value)}"
        if self.kind == "keys":
            return f"keys {list(value)!r}"[:200]
        try:
            return repr(value)[:200]
        except Exception:
            return f"<{type(value).__qualname__}>"
