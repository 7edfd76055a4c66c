"""Which items must run before which: a graph without cycles that grows, with what comes before each item at hand.

Sets of items are bits of an integer. An item knows its direct needs, and the closure of these; what changes the closure
goes on only to those who come after, so a graph that is made in order costs each item no more than its own needs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence


class Precedence:
    """Items by number, from 0, in the order in which they were added."""

    def __init__(self) -> None:
        self.before: list[int] = []  # everything that must come before, directly or not
        self._needs: list[int] = []  # directly
        self._next: list[set[int]] = []  # who needs the item directly
        self._ends = 0  # the items that nobody needs

    def __len__(self) -> int:
        return len(self.before)

    def append(self, needs: int) -> int:
        """One more item, after these; its number."""
        at = len(self.before)
        self.before.append(self.closed(needs))
        self._needs.append(needs)
        self._next.append(set())
        for other in bits(needs):
            self._next[other].add(at)
        self._ends = self._ends & ~needs | 1 << at
        return at

    def everything(self) -> int:
        """Items after which all others have run too."""
        return self._ends

    def closed(self, needs: int) -> int:
        """These items and all that must come before them."""
        total = needs
        for at in bits(needs):
            total |= self.before[at]
        return total

    def follow(self, at: int, needs: int) -> None:
        """Let an item come after others too, none of which comes after it."""
        for other in bits(needs & ~self._needs[at]):
            self._next[other].add(at)
        self._needs[at] |= needs
        self._ends &= ~needs
        self._spread([at], self.closed(needs), 0)

    def _spread(self, first: Sequence[int], more: int, less: int) -> None:
        """Change what comes before some items, and so before all that come after them."""
        waiting = list(first)
        while waiting:
            at = waiting.pop()
            changed = self.before[at] & ~less | more
            if changed != self.before[at]:
                self.before[at] = changed
                waiting += self._next[at]

    def has_between(self, one: int, other: int) -> bool:
        """Is there an item that must come after one of the two and before the other?"""
        return self._passes(one, other) or self._passes(other, one)

    def _passes(self, first: int, last: int) -> bool:
        return any(self.before[at] >> first & 1 for at in bits(self._needs[last] & ~(1 << first)))

    def unite(self, one: int, other: int) -> None:
        """Make ``one`` of both, between which there must be nothing; ``other`` stays as an item without needs."""
        both = 1 << one | 1 << other
        direct = (self._needs[one] | self._needs[other]) & ~both
        for at in bits(self._needs[other]):
            self._next[at].discard(other)
        for at in bits(direct):
            self._next[at].add(one)
        self._next[other].discard(one)
        moved = self._next[other]
        for at in moved:
            self._needs[at] = self._needs[at] & ~(1 << other) | 1 << one
        self._next[one] |= moved
        self._next[other] = set()
        self._needs[one], self._needs[other] = direct, 0
        self.before[one] = (self.before[one] | self.before[other]) & ~both
        self.before[other] = 0
        self._spread([*self._next[one]], self.before[one] | 1 << one, 1 << other)
        self._ends &= ~both
        if not self._next[one]:
            self._ends |= 1 << one

    def order(self, wanted: Sequence[int]) -> list[int]:
        """All items in an order that is allowed; of those that could be next the one whose ``wanted`` is least."""
        left = [needs.bit_count() for needs in self._needs]
        ready = [(wanted[at], at) for at, count in enumerate(left) if not count]
        heapq.heapify(ready)
        result = []
        while ready:
            _, at = heapq.heappop(ready)
            result.append(at)
            for other in self._next[at]:
                left[other] -= 1
                if not left[other]:
                    heapq.heappush(ready, (wanted[other], other))
        assert len(result) == len(self.before)
        return result


def bits(number: int) -> Iterator[int]:
    """The items of a set, ascending."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
