"""What capture knows of one object older than the frame: its source, and the writes that wait for the graph."""

from __future__ import annotations

import collections
import contextlib
import logging
import types
from dataclasses import dataclass
from typing import Any, Final

import torch

from jitney.guards import Source


class _Sentinel:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = _Sentinel("ABSENT")
CONTENT_TYPES = (list, dict, set, collections.deque)
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


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
    needed, ``original`` the shadow as it was then. ``slots`` holds attributes written outside any ``__dict__``,
    ``pending`` what was appended to a list nobody has looked into, ``cell`` (a one-tuple) a closure cell's new content.
    """

    __slots__ = ("cell", "content", "dict_record", "dirty", "original", "overlay", "owner", "pending", "slots",
                 "source", "value")  # fmt: skip

    def __init__(self, value: Any, source: Source) -> None:
        self.value = value
        self.source = source
        self.overlay: dict[Any, Any] = {}
        self.content: Any = None
        self.pending: list[Any] = []
        self.original: Any = None
        self.slots: dict[str, Any] = {}
        self.cell: tuple[Any, ...] | None = None
        self.dirty = False
        self.dict_record: Record | None = None
        self.owner: Record | None = None

    def __repr__(self) -> str:
        return f"<Record {self.source.name}{' dirty' if self.dirty else ''}>"


# ------------------------------------------------------------------ what must not happen twice


def writes(vm: Any) -> tuple[Any, ...]:
    """What has been written so far to what there is: equal to what it is later if nothing has been written since."""
    dirty = [key for key, record in list(vm.world.records.items()) if record.dirty]
    return dirty, _Contents(vm.world), vm.tracer.written(), vm.tracer.writes_statistics(), vm.tracer.data_writes


class _Contents:
    """What the frame's own objects hold, and what waits to be written to older ones."""

    def __init__(self, world: Any) -> None:
        self.held: dict[int, tuple[Any, list[Any]]] = {}
        for record in world.records.values():
            if record.dirty:
                waiting = [*record.pending, *(record.cell or ())]
                for part in (record.overlay, record.slots, record.content):
                    waiting += _items(part)
                self.held[id(record)] = (record, waiting)
        for value in world.fresh.values():
            self.held[id(value)] = (value, _items(value))

    def __eq__(self, other: object) -> bool:
        """Objects that only one of them knows were made since."""
        if not isinstance(other, _Contents):
            return NotImplemented
        both = self.held.keys() & other.held.keys()
        return all(_same(self.held[key][1], other.held[key][1]) for key in both)

    __hash__ = None  # type: ignore[assignment]


def _items(value: Any) -> list[Any]:
    """The objects that a container, a cell or an instance holds; of an iterator, how much is left."""
    if isinstance(value, dict):
        found = [*dict.keys(value), *dict.values(value)]
    elif isinstance(value, CONTENT_TYPES):
        base: Any = next(kind for kind in CONTENT_TYPES if isinstance(value, kind))
        found = list(base.__iter__(value))
    elif isinstance(value, types.CellType):
        found = _content(value)
    else:
        hint: Any = getattr(type(value), "__length_hint__", None)
        found = [hint(value)] if type(hint) is types.MethodDescriptorType else []
    cls = type(value)
    if not cls.__flags__ & HEAP_TYPE or isinstance(value, (type, torch.Tensor)):
        return found
    if cls.__dictoffset__:
        found += object.__getattribute__(value, "__dict__").values()
    members = (member for base in cls.__mro__ for member in vars(base).values())
    return found + [_slot(value, member) for member in members if type(member) is types.MemberDescriptorType]


def _content(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _slot(value: Any, member: Any) -> Any:
    try:
        return member.__get__(value)
    except AttributeError:
        return ABSENT


def _same(items: list[Any], others: list[Any]) -> bool:
    """By identity; how much is left of an iterator is a number."""
    pairs = zip(items, others, strict=False)
    return len(items) == len(others) and all(a is b or (type(a) is type(b) is int and a == b) for a, b in pairs)
