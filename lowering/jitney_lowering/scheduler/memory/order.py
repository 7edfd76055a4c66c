"""Which of the items that may run next does: the one after which least memory is taken.

Only where that lowers the peak: else the items stay in the order of the program, where what is read has mostly just
been made.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import LAST, Extern, Program, Strided
from jitney_lowering.scheduler.memory.in_place import root
from jitney_lowering.scheduler.size_guess import guess

MOST = 1000  # items that are put in another order
WORTH = 0.95  # of the peak, at most, is what another order must need
SMALL = 1 << 16  # bytes that are not counted, when one of two items is to be chosen


def ordered(
    items: Sequence[Kernel | Extern], program: Program, kept: Collection[str], dying: Collection[str] = ()
) -> list[Kernel | Extern]:
    """The items, perhaps in another order that dependencies allow.

    Args:
        items: in an order in which they may run.
        program: the graph.
        kept: buffers that somebody has after the call.
        dying: inputs that are gone once they have been read for the last time: of a backward what was saved for it.
    """
    if len(items) > MOST or program.checks or any(isinstance(i, Extern) and not _moves(i) for i in items):
        return list(items)
    least = _Order(items, program, kept, dying)
    other = least.greedy()
    without = _Order(items, program, kept, ())
    as_it_is = range(len(items))
    better = least.peak(other) <= WORTH * least.peak(as_it_is)
    return [items[n] for n in other] if better and WORTH * without.peak(other) <= without.peak(as_it_is) else [*items]


def _moves(item: Extern) -> bool:
    """May it run earlier or later, as far as it is concerned?"""
    return not item.has_effect and not item.aliases and item.reason != LAST


class _Order:
    """Items by number: what each waits for, and how much memory there is while they run.

    Buffers count as the memory in which they are.
    """

    def __init__(
        self, items: Sequence[Kernel | Extern], program: Program, kept: Collection[str], dying: Collection[str]
    ) -> None:
        buffers = program.buffers
        lasting = {root(name, buffers) for name in kept} | program.constants.keys()
        lasting |= {o.buffer for o in program.outputs if isinstance(o, Strided)}
        inputs = {name for name in program.inputs if isinstance(name, str)}
        self.reads = [{root(n, buffers) for n in item.reads | item.writes} for item in items]
        self.writes = [{root(n, buffers) for n in item.writes} - inputs for item in items]
        self.needs: list[set[int]] = []
        touched: dict[str, list[int]] = {}
        writers: dict[str, list[int]] = {}
        for number, names in enumerate(self.reads):
            before = [touched if name in self.writes[number] else writers for name in names]
            self.needs.append({n for name, table in zip(names, before, strict=True) for n in table.get(name, ())})
            for name in names:
                touched.setdefault(name, []).append(number)
            for name in self.writes[number]:
                writers.setdefault(name, []).append(number)
        self.there = set(dying) & touched.keys()
        self.readers = {name: len(numbers) for name, numbers in touched.items()}
        self.frees = {name for name in touched if name in self.there or (name not in lasting and name not in inputs)}
        self.bytes = {name: guess(buffers[name].extent) * buffers[name].dtype.itemsize for name in touched}

    def greedy(self) -> list[int]:
        """An order: each time the item that leaves least, of several the first."""
        later: list[list[int]] = [[] for _ in self.needs]
        waiting = [len(needs) for needs in self.needs]
        for number, needs in enumerate(self.needs):
            for other in needs:
                later[other].append(number)
        ready = [number for number, count in enumerate(waiting) if not count]
        there, left = set(self.there), dict(self.readers)
        result: list[int] = []
        while ready:
            chosen = min(ready, key=lambda n: (self._change(n, there, left) // SMALL, n))
            ready.remove(chosen)
            result.append(chosen)
            self._run(chosen, there, left)
            for other in later[chosen]:
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)
        return result

    def peak(self, order: Sequence[int]) -> int:
        """Bytes at the highest."""
        there, left = set(self.there), dict(self.readers)
        now = most = sum(self.bytes[name] for name in there)
        for number in order:
            made = sum(self.bytes[name] for name in self.writes[number] - there)
            most = max(most, now + made)
            now += self._change(number, there, left)
            self._run(number, there, left)
        return most

    def _change(self, number: int, there: set[str], left: dict[str, int]) -> int:
        """Bytes that there are more after an item has run."""
        made = sum(self.bytes[name] for name in self.writes[number] - there)
        return made - sum(self.bytes[name] for name in self._freed(number, left))

    def _freed(self, number: int, left: dict[str, int]) -> list[str]:
        return [name for name in self.reads[number] if left[name] == 1 and name in self.frees]

    def _run(self, number: int, there: set[str], left: dict[str, int]) -> None:
        there |= self.writes[number]
        there.difference_update(self._freed(number, left))
        for name in self.reads[number]:
            left[name] -= 1
