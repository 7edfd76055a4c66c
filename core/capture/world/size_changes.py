"""Tensors that a frame replaces by others of another size, where they lie: a cache that grows with each call.

The next call finds the other size there, so that one size is not compiled before any size is: the capture starts over
with what changes symbolic, as it would be after a second call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitney.capture.kinds import is_stand_in
from jitney.capture.world.record import CONTENT_TYPES, Record
from jitney.capture.world.world import World
from jitney.guards import Source


def size_changes(world: World) -> Iterator[tuple[Any, Source, tuple[int | None, ...]]]:
    """Each tensor that is there now, where it lies, and the sizes there after the call; None: one that varies."""
    for record in list(world.records.values()):
        if record.dirty:
            for before, after in _replaced(world, record):
                found = world.tracer.adopted.get(id(before)) if is_stand_in(before) else None
                if found is not None and is_stand_in(after) and before is not after:
                    real, source = found
                    sizes = tuple(size if type(size) is int else None for size in after.shape)
                    if len(sizes) == real.dim():
                        yield real, source, sizes


def _replaced(world: World, record: Record) -> Iterator[tuple[Any, Any]]:
    """What capture has made of what was there, and what is to be there, for places that the frame has read."""
    for key, value in record.overlay.items():
        yield _read(record.source.known(world.item_kind(record.value), key)), value
    for name, value in record.slots.items():
        yield _read(record.source.known("attr", name)), value
    if record.cell is not None:
        yield _read(record.source.known("attr", "cell_contents")), record.cell[0]
    if isinstance(record.content, dict) and isinstance(record.original, dict):
        for key, value in record.content.items():
            yield record.original.get(key), value
    elif isinstance(record.content, CONTENT_TYPES) and not isinstance(record.content, set):
        yield from zip(record.original, record.content, strict=False)


def _read(source: Source | None) -> Any:
    return source.seen[0] if source is not None and source.seen is not None else None
