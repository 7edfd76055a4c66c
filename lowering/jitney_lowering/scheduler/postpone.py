"""Products whose results nobody reads for a while wait, where that takes less memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Buffer, Extern
from jitney_lowering.scheduler.memory.in_place import root
from jitney_lowering.scheduler.memory.successors import FRESH


def postponed(
    items: Sequence[Kernel | Extern], buffers: Mapping[str, Buffer], lasting: Collection[str]
) -> list[Kernel | Extern]:
    """The items in an order in which a product comes right before who reads it, or last.

    A product stays where it is if what it reads would have to wait for it, and is larger than its result: of a layer
    with a small batch the weight's gradient is much larger than what it is made of.

    Args:
        items: in an order in which they may run.
        buffers: the program's.
        lasting: buffers that are there until the end, whoever reads them: outputs, constants.
    """
    order = _Order(items, buffers)
    for item in reversed(items):
        if item is items[-1] or not isinstance(item, Extern) or not _may_wait(item, buffers):
            continue
        at, until = order.position(item), order.first_reader(item)
        waiting = {name for name in item.reads if order.last_reader(name) < until} - set(lasting)
        if until > at + 1 and _bytes(waiting, buffers) < _bytes(item.writes, buffers):
            order.move(at, until - 1)
    return order.items


class _Order:
    """Items in a row, who reads what of them, and where each is now."""

    def __init__(self, items: Sequence[Kernel | Extern], buffers: Mapping[str, Buffer]) -> None:
        self.items = list(items)
        self._at = {id(item): number for number, item in enumerate(items)}
        self._readers: dict[str, list[Kernel | Extern]] = {}
        for item in items:
            for name in {*item.reads, *(root(name, buffers) for name in item.reads)}:
                self._readers.setdefault(name, []).append(item)
        self._effects = [item for item in items if isinstance(item, Extern) and item.has_effect]

    def position(self, item: Kernel | Extern) -> int:
        """Where an item is."""
        return self._at[id(item)]

    def last_reader(self, name: str) -> int:
        """The position of the last item that reads a buffer which somebody reads."""
        return max(map(self.position, self._readers[name]))

    def first_reader(self, item: Extern) -> int:
        """The position of the first item that it must not come after."""
        at = self.position(item)
        readers = [other for name in item.writes for other in self._readers.get(name, ())]
        later = [n for other in (*readers, *self._effects) if (n := self.position(other)) > at]
        return min(later, default=len(self.items))

    def move(self, at: int, to: int) -> None:
        """Put the item at one position to a later one."""
        self.items.insert(to, self.items.pop(at))
        for number in range(at, to + 1):
            self._at[id(self.items[number])] = number


def _may_wait(item: Extern, buffers: Mapping[str, Buffer]) -> bool:
    return item.target in FRESH and item.is_plain and all(buffers[name].home is None for name in item.writes)


def _bytes(names: Collection[str], buffers: Mapping[str, Buffer]) -> float:
    """Of these together; infinite if a size is symbolic."""
    total = 0.0
    for name in names:
        count = 1.0
        for size in buffers[name].size:
            count *= float("inf") if size.value is None else size.value
        total += count * buffers[name].dtype.itemsize
    return total
