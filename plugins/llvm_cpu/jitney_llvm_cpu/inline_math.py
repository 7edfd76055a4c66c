"""Own code for hot functions of float elements, inlined where it is called."""

from __future__ import annotations

from collections.abc import Callable

# (name, element): from symbol, width and "is there a fused multiply-add" to the definition's text.
INLINE: dict[tuple[str, str], Callable[[str, int, bool], str]] = {}
