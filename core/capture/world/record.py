"""What capture knows of one object older than the frame: its source, and the writes that wait for the graph."""

from __future__ import annotations

import collections
import contextlib
import logging
from dataclasses import dataclass
from typing import Any, Final

from jitney.guards import Source


class _Sentinel:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = _Sentinel("ABSENT")
CONTENT_TYPES = (list, dict, set, collections.deque)


@dataclass(frozen=True, slots=True)
class LogCall:
    """A logger that was called at a step, and the cached helper's call that waits (None: the level was off)."""

    logger: logging.Logger
    step: int
    waiting: tuple[Any, tuple[Any, ...]] | None


def empty_slot(value: Any, name: str) -> None:
    """What emitted code does for a slot that the frame has left empty: it may have been so before."""
    with contextlib.suppress(AttributeError):
        object.__delattr__(value, name)


class Record:
    """The real object, where it came from, and what is to be written to it.

    ``overlay`` holds single entries written to a dictionary; ``content`` is a whole shadow container once one was
    needed, ``original`` the shadow as it was then, ``numbers`` those of its keys that are numbers which change (as the
    shadow has them -> the symbols), ``exposed`` whether somebody may hold the shadow itself. ``slots`` holds attributes
    written outside any ``__dict__``, ``pending`` what was appended to a list nobody has looked into, ``cell`` (a
    one-tuple) a closure cell's new content.
    """

    __slots__ = ("cell", "dict_record", "dirty", "exposed", "numbers", "original", "overlay", "owner", "pending",
                 "shadow", "slots", "source", "value")  # fmt: skip

    def __init__(self, value: Any, source: Source) -> None:
        self.value = value
        self.source = source
        self.overlay: dict[Any, Any] = {}
        self.shadow: Any = None
        self.exposed = False
        self.numbers: dict[int, Any] = {}
        self.pending: list[Any] = []
        self.original: Any = None
        self.slots: dict[str, Any] = {}
        self.cell: tuple[Any, ...] | None = None
        self.dirty = False
        self.dict_record: Record | None = None
        self.owner: Record | None = None

    @property
    def content(self) -> Any:
        """The shadow, for whoever may look at its keys, or hand it on."""
        self.fix_keys()
        self.exposed = self.shadow is not None
        return self.shadow

    @content.setter
    def content(self, shadow: Any) -> None:
        self.shadow = shadow

    def fix_keys(self) -> None:
        """Keys of the shadow that are numbers which change become the constants that they are in this capture."""
        for key in [*self.numbers.values()]:
            int(key)
        self.numbers.clear()

    def __repr__(self) -> str:
        return f"<Record {self.source.name}{' dirty' if self.dirty else ''}>"
