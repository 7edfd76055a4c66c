"""A docstring, taken apart: its text, and what it says about each argument or field."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

_SECTION = re.compile(r"^(Args|Raises|Returns):$", re.M)
_ROW = re.compile(r"^ {4}(\w+(?:, \w+)*): ", re.M)


@dataclasses.dataclass(frozen=True)
class Described:
    """A docstring, taken apart.

    Args:
        text: what it says, without sections.
        rows: by argument or field: what ``Args:`` says about it.
    """

    text: str
    rows: dict[str, str]


def taken_apart(documented: Any) -> Described:
    """The docstring of anybody's function or class, whatever is in it."""
    text, *sections = _SECTION.split(inspect.cleandoc(documented.__doc__ or ""))
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    rows: dict[str, str] = {}
    parts = _ROW.split(found.get("Args", ""))
    for together, says in zip(parts[1::2], parts[2::2], strict=True):
        for name in together.split(", "):
            rows[name] = " ".join(says.split())
    return Described(text.strip(), rows)
