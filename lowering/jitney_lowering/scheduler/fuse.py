"""Which steps become one kernel: greedy, in the order of the program, never against a dependency."""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Iterable, Sequence

from jitney_lowering.index import Index, Names
from jitney_lowering.ir.loops import LAST, Computed, Extern, Program, Step
from jitney_lowering.policy import CPU, Policy
from jitney_lowering.scheduler.group import Group, alone, iterations, join
from jitney_lowering.scheduler.loop_order import along_rows

# How many of the latest groups are tried for a step that reads what they read, but nothing that they make.
NEIGHBOURS = 16
# So many times larger is what a step goes through than what it reads in common with others for nothing.
SMALL = 16


class Fusion:
    """Groups of steps and extern calls, and which must come before which."""

    def __init__(self, program: Program, names: Names, policy: Policy = CPU) -> None:
        self.program = program
        self.policy = policy
        self.names = names
        self.items: list[Group | Extern] = []
        self.before: list[int] = []  # bit sets of item numbers: everything that must come before, directly or not
        self.maker: dict[str, int] = {}
        self.ordered = -1  # the last extern call that must keep its place
        self.numbers: list[int] = []

    def add(self, step: Step, number: int) -> None:
        """Put a step into a group of its own or into one that is there."""
        needs = 0
        for name in step.reads:
            if name in self.maker:
                needs |= 1 << self.maker[name]
        if isinstance(step, Extern):
            if step.written:  # everything so far may read what it changes
                needs = (1 << len(self.items)) - 1
            elif step.has_effect and self.ordered >= 0:
                needs |= 1 << self.ordered
            at = self._append(step, needs, number)
            if step.has_effect:
                self.ordered = at
        else:
            at = self._put(step, number, needs)
        for name in step.writes:
            self.maker[name] = at

    def _append(self, item: Group | Extern, needs: int, number: int) -> int:
        self.items.append(item)
        self.before.append(self._closed(needs))
        self.numbers.append(number)
        return len(self.items) - 1

    def _closed(self, needs: int) -> int:
        total = needs
        for at in _bits(needs):
            total |= self.before[at]
        return total

    def _put(self, step: Computed, number: int, needs: int) -> int:
        needs = self._merged(step, needs)
        for at in self._candidates(step, needs):
            group = self.items[at]
            assert isinstance(group, Group)
            others = self._closed(needs & ~(1 << at))
            if others >> at & 1:  # something that the step needs comes after the group
                continue
            joined = join(group, step, number, self.names)
            if joined is None and self.policy.turned_row:
                other = along_rows(group, step)
                joined = None if other is None else join(group, other, number, self.names)
            if joined is not None:
                self.items[at] = joined
                self._must_follow(at, others)
                return at
        return self._append(alone(step, number, self.policy), needs, number)

    def _merged(self, step: Computed, needs: int) -> int:
        """Make one group of those that the step needs, where that can be; what it needs then."""
        groups = [at for at in _bits(needs) if isinstance(self.items[at], Group)]
        while len(groups) > 1:
            one = groups.pop()
            for other in reversed(groups):
                if self._merge(other, one):
                    needs &= ~(1 << one)
                    break
        return needs

    def merge_alike(self, read: Callable[[Group], frozenset[str]]) -> None:
        """Make few kernels of many that end in results of the graph, have equal ranges, and nothing else in common.

        Args:
            read: what somebody outside of a group reads of what it makes.
        """
        latest: dict[tuple[Index, ...], int] = {}
        for at, item in enumerate(self.items):
            if not isinstance(item, Group) or not item.members or not self._is_last(item, read):
                continue
            sizes = tuple(v.size for v in item.spine)
            if sizes not in latest or not self._merge(latest[sizes], at, related=False):
                latest[sizes] = at

    def _is_last(self, group: Group, read: Callable[[Group], frozenset[str]]) -> bool:
        count = math.prod(v.size.value or self.policy.alike for v in group.spine)
        plain = all(m.pointwise and m.step.loops == group.spine for m in group.members)
        return plain and count <= self.policy.alike and not read(group)

    def _merge(self, one: int, other: int, *, related: bool = True) -> bool:
        """Put the members of ``other`` into ``one``, and nothing into ``other``."""
        first, second = self.items[one], self.items[other]
        assert isinstance(first, Group) and isinstance(second, Group)
        between = (self.before[other] | self.before[one]) & ~(1 << one | 1 << other)
        if any(self.before[at] & (1 << one | 1 << other) for at in _bits(between)):
            return False
        members = sorted((*first.members, *second.members), key=lambda m: m.number)
        group: Group | None = alone(members[0].step, members[0].number, self.policy)
        for member in members[1:]:
            group = join(group, member.step, member.number, self.names) if group else None
        if group is None or (related and not _worth(group, first, second)):
            return False
        self.items[one], self.items[other] = group, Group((), 0, ())
        self.maker = {name: one if at == other else at for name, at in self.maker.items()}
        for at, before in enumerate(self.before):
            if before >> other & 1:
                self.before[at] = before & ~(1 << other) | 1 << one
        self._must_follow(one, between)
        self.before[one] &= ~(1 << one)
        self.before[other] = 0
        return True

    def _must_follow(self, at: int, needs: int) -> None:
        added = needs & ~self.before[at]
        if not added:
            return
        self.before[at] |= added
        for other in range(len(self.items)):
            if self.before[other] >> at & 1:
                self.before[other] |= added | self.before[at]

    def _candidates(self, step: Computed, needs: int) -> Iterable[int]:
        makers = [at for at in sorted(_bits(needs), reverse=True) if isinstance(self.items[at], Group)]
        yield from makers
        barrier = self.ordered if self.ordered >= 0 and self._writes(self.ordered) else -1
        for at in range(len(self.items) - 1, max(barrier, len(self.items) - 1 - NEIGHBOURS), -1):
            group = self.items[at]
            if at not in makers and isinstance(group, Group) and self._shares(group, step):
                yield at

    def _shares(self, group: Group, step: Computed) -> bool:
        """Is there something to be read once instead of twice? A number, or a row that all rows read, is in the cache."""
        count = iterations(step.loops)
        for name in group.reads & step.reads:
            elements = self.program.buffers[name].extent.value
            if count is None or elements is None or elements * SMALL >= count:
                return True
        return False

    def _writes(self, at: int) -> bool:
        item = self.items[at]
        return isinstance(item, Extern) and bool(item.written)

    def ordered_items(self) -> list[Group | Extern]:
        """All items in an order that dependencies allow, near to the program's."""
        left = [bin(b).count("1") for b in self.before]
        after: list[list[int]] = [[] for _ in self.items]
        for at, before in enumerate(self.before):
            for other in _bits(before):
                after[other].append(at)
        ready = [(self.numbers[at], at) for at, count in enumerate(left) if not count]
        heapq.heapify(ready)
        result = []
        while ready:
            _, at = heapq.heappop(ready)
            result.append(self.items[at])
            for other in after[at]:
                left[other] -= 1
                if not left[other]:
                    heapq.heappush(ready, (self.numbers[other], other))
        assert len(result) == len(self.items)
        return result


def fuse(steps: Sequence[Step], program: Program, names: Names, policy: Policy = CPU) -> list[Group | Extern]:
    """Groups and extern calls in an order in which they may run."""
    fusion = Fusion(program, names, policy)
    for number, step in enumerate(steps):
        fusion.add(step, number)
    if policy.alike:
        fusion.merge_alike(functools.partial(_read_elsewhere, fusion))
    return [item for item in fusion.ordered_items() if isinstance(item, Extern) or item.members]


def _read_elsewhere(fusion: Fusion, group: Group) -> frozenset[str]:
    """What others read of what a group makes; those do not count that only copy it to where it shall be at the end."""
    made = group.makers.keys()
    program = fusion.program
    found = {name for name in made if program.buffers[name].home is not None}
    found |= {check[0] for check in program.checks if check[0] in made}
    for item in fusion.items:
        if item is not group and not (isinstance(item, Extern) and item.reason == LAST):
            found |= item.reads & made
    return frozenset(found)


def _worth(made: Group, first: Group, second: Group) -> bool:
    """Does a kernel of both read or write less than one of each?"""
    shared = first.reads & second.reads or first.reads & second.makers.keys() or second.reads & first.makers.keys()
    return bool(shared) and made.depth > 0


def _bits(number: int) -> Iterable[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
