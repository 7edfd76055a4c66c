"""What has been written so far, for what must not happen twice or is to have no effects."""

from __future__ import annotations

import types
from typing import Any

import torch

from jitney._util.ownership import HEAP
from jitney.capture.world.record import ABSENT, CONTENT_TYPES


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
                for part in (record.overlay, record.slots, record.shadow):
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
    if not cls.__flags__ & HEAP or isinstance(value, (type, torch.Tensor)):
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
