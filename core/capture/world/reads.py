"""Which objects older than the frame are looked at while something is interpreted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from jitney.capture.world.record import Record
from jitney.capture.world.world import World


class ReadRecords(dict[int, Record]):
    """A world's records, that note which ones are asked for."""

    def __init__(self, records: dict[int, Record]) -> None:
        super().__init__(records)
        self.read: set[int] = set()

    def get(self, key: int, default: Any = None) -> Any:
        """The record of the object with this id."""
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: int) -> Record:
        self.read.add(key)
        return super().__getitem__(key)

    def written(self) -> bool:
        """Was something asked for that is to be written to, or whose ``__dict__`` is?"""
        found = [record for key in self.read if (record := dict.get(self, key)) is not None]
        return any(part is not None and part.dirty for r in found for part in (r, r.dict_record, r.owner))


@contextlib.contextmanager
def records_read(world: World) -> Iterator[ReadRecords]:
    """A block in which it is noted."""
    before = world.records
    world.records = noting = ReadRecords(before)
    try:
        yield noting
    finally:
        before.update(noting)
        if isinstance(before, ReadRecords):
            before.read |= noting.read
        world.records = before
