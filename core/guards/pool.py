"""The constants that emitted code names: classes, functions, code objects, dictionaries of globals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jitney.guards import pristine

_LITERALS = (int, str, bool, bytes)


class Pool:
    """Names for objects, and the namespace in which the emitted code finds them."""

    def __init__(self, namespace: dict[str, Any] | None = None) -> None:
        self.namespace: dict[str, Any] = {"_b": pristine, "_type": type, **(namespace or {})}
        self._names: dict[int, str] = {}

    @classmethod
    def over(cls, namespace: Mapping[str, Any]) -> Pool:
        """A pool that calls the objects of a namespace by their names there."""
        made = cls(dict(namespace))
        made._names = {id(value): name for name, value in namespace.items()}
        return made

    def literal(self, value: Any) -> str | None:
        """Python text for ``value``, or None where only the object itself will do."""
        kind = type(value)
        if value is None or value is Ellipsis or kind in _LITERALS:
            return repr(value)
        if kind is float and math.isfinite(value):
            return repr(value)
        return None

    def name(self, value: Any, hint: str = "c") -> str:
        """An expression whose value is this very object (or an equal literal)."""
        text = self.literal(value)
        if text is not None:
            return text
        return self.object(value, hint)

    def object(self, value: Any, hint: str = "c") -> str:
        """A name bound to this very object."""
        key = id(value)
        found = self._names.get(key)
        if found is None:
            found = f"_{hint}{len(self.namespace)}"
            self.namespace[found] = value  # also keeps it alive, so its id stays its own
            self._names[key] = found
        return found
