"""Where temporaries live: one arena for a call, in which buffers that are not needed at the same time share places.

Large ones may have memory of their own instead: the allocator then gives what is free again to operators, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jitney.errors import BackendFailed
from jitney_lowering.index import Index, index
from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Buffer, Extern
from jitney_lowering.scheduler.memory.in_place import over, root
from jitney_lowering.scheduler.size_guess import guess

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


@dataclass(frozen=True)
class Block:
    """A buffer's place in the arena, and the items (numbers) between which it must stay, both included.

    ``instead_of``: the buffer whose place it takes over in its first item, which is that one's last.
    """

    name: str
    offset: Index  # bytes
    size: Index  # bytes
    first: int
    last: int
    instead_of: str = ""


@dataclass(frozen=True)
class Memory:
    """The plan.

    Args:
        blocks: places in the arena.
        size: the arena's, in bytes.
        apart: temporaries with memory of their own -> the one whose memory each takes over, or "".
    """

    blocks: Mapping[str, Block]
    size: Index
    apart: Mapping[str, str] = field(default_factory=dict)

    @property
    def instead_of(self) -> dict[str, str]:
        """Buffer -> the one whose memory it takes over."""
        found = {name: block.instead_of for name, block in self.blocks.items()} | dict(self.apart)
        return {name: old for name, old in found.items() if old}

    def verify(self) -> None:
        """No two buffers that live at the same time overlap; raises ``BackendFailed``."""
        blocks = list(self.blocks.values())
        for number, one in enumerate(blocks):
            for other in blocks[:number]:  # these begin no later
                if one.first > other.last or other.first > one.last or one.instead_of == other.name:
                    continue
                gaps = [
                    (other.offset - one.offset - one.size).bounds(),
                    (one.offset - other.offset - other.size).bounds(),
                ]
                if not any(low is not None and low >= 0 for low, _ in gaps):
                    raise BackendFailed(f"memory plan: {one.name} and {other.name} overlap")


def plan(
    items: Sequence[Kernel | Extern],
    buffers: Mapping[str, Buffer],
    outside: Iterable[str],
    large: int | None = None,
    taken: Collection[str] = (),
) -> Memory:
    """Give every buffer that kernels fill and nobody else keeps a place in the arena, or memory of its own.

    Args:
        items: in the order in which they run.
        buffers: the program's.
        outside: buffers that have memory of their own: inputs, outputs, what extern calls make.
        large: so many bytes are too much for the arena; None: nothing is.
        taken: temporaries whose memory something of ``outside`` takes over.
    """
    owned = frozenset(outside)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, item in enumerate(items):
        for name in sorted({root(name, buffers) for name in item.writes | item.reads}):
            if name not in owned:
                first.setdefault(name, number)
                last[name] = number
    ending: dict[int, list[str]] = {}  # by number: buffers that end with that item
    for name in first:
        ending.setdefault(last[name], []).append(name)
    blocks: dict[str, Block] = {}
    living: list[Block] = []
    replaced = set(taken)
    apart = {n: "" for n in first if is_apart(buffers[n], large)}
    total = index(0)
    fixed: int | None = None  # below it all places are numbers; None: so far, everywhere
    for name in sorted(first, key=lambda n: (first[n], n)):
        at, size = first[name], _padded(buffers[name])
        free = [n for n in ending.get(at, ()) if first[n] < at and (n in apart) is (name in apart)]
        found = over(items[at], name, [n for n in free if n not in replaced], buffers)
        replaced.add(found)
        if name in apart:
            apart[name] = found
            continue
        if found:
            old = blocks[found]
            blocks[name] = Block(name, old.offset, old.size, first[name], last[name], old.name)
            living.append(blocks[name])
            continue
        living = [b for b in living if b.last >= at]
        if size.value is None and fixed is None:
            fixed = total.value
        offset = None if size.value is None else _gap(living, size.value, fixed)
        if offset is None:
            offset = _place_of_same(living, size, blocks.values())
        if offset is None:
            offset, total = total, total + size
        elif fixed is None:
            total = index(max(total.value or 0, (offset + size).value or 0))
        blocks[name] = Block(name, offset, size, first[name], last[name])
        living.append(blocks[name])
    return Memory(blocks, total, apart)


def is_apart(buffer: Buffer, large: int | None) -> bool:
    """Has a temporary memory of its own, where ``large`` bytes are too much for the arena?"""
    return large is not None and guess(_padded(buffer)) >= large


def _padded(buffer: Buffer) -> Index:
    """Bytes, up to a whole number of cache lines."""
    return (buffer.extent * buffer.dtype.itemsize + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def _place_of_same(living: Sequence[Block], size: Index, everything: Iterable[Block]) -> Index | None:
    """The first place that is free now and had exactly this size, of those that do not lie among numbers."""
    taken = {b.offset for b in living}
    symbolic = (b for b in everything if b.offset.value is None or b.size.value is None)
    return next((b.offset for b in symbolic if b.size is size and b.offset not in taken), None)


def _gap(living: Sequence[Block], size: int, end: int | None) -> Index | None:
    """The lowest place among numbers that is free now, and ends below ``end``."""
    place = 0
    taken = [(b.offset.value, b.size.value) for b in living if b.offset.value is not None and b.size.value is not None]
    for offset, extent in sorted(taken):
        if place + size <= offset:
            break
        place = max(place, offset + extent)
    return index(place) if end is None or place + size <= end else None
