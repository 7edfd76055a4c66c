"""Products whose results nobody reads for a while wait, where that takes less memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Buffer, Extern
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
    order = list(items)
    last = _last_readers(order)
    for at in range(len(order) - 2, -1, -1):
        item = order[at]
        if not isinstance(item, Extern) or not _may_wait(item, buffers):
            continue
        until = _first_reader(order, at, item)
        waiting = {name for name in item.reads if last[name] < until} - set(lasting)
        if until > at + 1 and _bytes(waiting, buffers) < _bytes(item.writes, buffers):
            order.insert(until - 1, order.pop(at))
            last = _last_readers(order)
    return order


def _last_readers(order: Sequence[Kernel | Extern]) -> dict[str, int]:
    return {name: number for number, item in enumerate(order) for name in item.reads}


def _may_wait(item: Extern, buffers: Mapping[str, Buffer]) -> bool:
    return item.target in FRESH and item.is_plain and all(buffers[name].home is None for name in item.writes)


def _first_reader(order: Sequence[Kernel | Extern], at: int, item: Extern) -> int:
    """The position of the first item that it must not come after."""
    for number in range(at + 1, len(order)):
        other = order[number]
        if other.reads & item.writes or (isinstance(other, Extern) and other.has_effect):
            return number
    return len(order)


def _bytes(names: Collection[str], buffers: Mapping[str, Buffer]) -> float:
    """Of these together; infinite if a size is symbolic."""
    total = 0.0
    for name in names:
        count = 1.0
        for size in buffers[name].size:
            count *= float("inf") if size.value is None else size.value
        total += count * buffers[name].dtype.itemsize
    return total
