"""Which steps become one kernel: greedy, in the order of the program, never against a dependency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set

from jitney_lowering.index import Index, Names
from jitney_lowering.ir.loops import LAST, SCANS, SCATTER, Computed, Extern, Program, Step, Strided
from jitney_lowering.ir.matrix_product import MOST_TOGETHER
from jitney_lowering.ir.values import Put, cost
from jitney_lowering.policy import CPU, Policy
from jitney_lowering.scheduler.group import Group, alone, has_many_buffers, iterations, join
from jitney_lowering.scheduler.loop_order import along_rows, like_rows
from jitney_lowering.scheduler.precedence import Precedence, bits

# How many of the latest groups are tried for a step that reads what they read, but nothing that they make.
NEIGHBOURS = 16
# So many times larger is what a step goes through than what it reads in common with others for nothing.
SMALL = 16
# So many times more elements than places are scattered by kernels that scatter to several buffers. On an H100 sums of a
# million elements by 8,000 keys (target encoding) take 0.55 of the time so, a step of hash tables with 32 elements to a
# place 0.93.
CROWDED = 32
BRIEFER = 1024  # times fewer elements than bytes of brief kernels are scattered by such
FEW = 1 << 16  # elements of buffers that are filled together, so that they are there for longer than needed


class Fusion:
    """Groups of steps and extern calls, and which must come before which."""

    def __init__(
        self, program: Program, names: Names, policy: Policy = CPU, readers: Mapping[str, Set[int]] | None = None
    ) -> None:
        self.program = program
        self.readers = readers or {}
        self.policy = policy
        self.names = names
        self.items: list[Group | Extern] = []
        self.precedence = Precedence()
        self.maker: dict[str, int] = {}
        self.ordered = -1  # the last extern call that must keep its place
        self.fills: set[str] = set()  # buffers that begin with what is computed of nothing
        self.numbers: list[int] = []

    def add(self, step: Step, number: int) -> None:
        """Put a step into a group of its own or into one that is there."""
        needs = 0
        for name in step.reads:
            if name in self.maker:
                needs |= 1 << self.maker[name]
        if isinstance(step, Extern):
            if step.written:  # everything so far may read what it changes
                needs = self.precedence.everything()
            elif step.has_effect and self.ordered >= 0:
                needs |= 1 << self.ordered
            at = self._append(step, needs, number)
            if step.has_effect:
                self.ordered = at
        else:
            at = self._put(step, number, needs)
            if not step.reads:
                self.fills.add(step.buffer)
        for name in step.writes:
            self.maker[name] = at

    def _append(self, item: Group | Extern, needs: int, number: int) -> int:
        self.items.append(item)
        self.numbers.append(number)
        return self.precedence.append(needs)

    def _put(self, step: Computed, number: int, needs: int) -> int:
        needs = self._merged(step, needs)
        for at in self._candidates(step, needs):
            group = self.items[at]
            assert isinstance(group, Group)
            others = needs & ~(1 << at)
            if self.precedence.closed(others) >> at & 1:  # something that the step needs comes after the group
                continue
            joined = self._joined(group, step, number)
            if joined is None and self.policy.turned_row:
                other = along_rows(group, step)
                joined = None if other is None else self._joined(group, other, number)
            if joined is not None:
                self.items[at] = joined
                self.precedence.follow(at, others)
                return at
        return self._append(alone(step, number, self.policy, self.readers), needs, number)

    def _merged(self, step: Computed, needs: int) -> int:
        """Make one group of those that the step needs, where that can be; what it needs then."""
        groups = [at for at in bits(needs) if isinstance(self.items[at], Group)]
        while len(groups) > 1:
            one = groups.pop()
            for other in reversed(groups):
                if self._merge(other, one):
                    needs &= ~(1 << one)
                    break
        return needs

    def merge_alike(self) -> None:
        """Make few kernels of many that end in results of the graph, have equal ranges, and nothing else in common."""
        read = self._read_elsewhere()
        latest: dict[tuple[Index, ...], int] = {}
        for at, item in enumerate(self.items):
            if not isinstance(item, Group) or not item.members or not self._is_last(item, read):
                continue
            sizes = tuple(v.size for v in item.spine)
            if sizes not in latest or not self._merge(latest[sizes], at, related=False):
                latest[sizes] = at

    def merge_readers(self) -> None:
        """Make one kernel of those that read the same and end in results of the graph, which are there to the end.

        Wherever they are among the others: an optimizer clips all gradients before it reads the first one again.
        """
        read = self._read_elsewhere()
        latest: dict[str, int] = {}
        for at, item in enumerate(self.items):
            if not isinstance(item, Group) or not item.members or not self._ends(item, read):
                continue
            if any(m.step.kind == SCATTER for m in item.members):  # what it changes must be there before
                continue
            count = math.prod(v.size.value or 0 for v in item.spine)
            shared = [name for name in sorted(item.reads) if self._is_large(name, count)]
            first = max((latest[name] for name in shared if name in latest), default=-1)
            merged = first >= 0 and self._keeps_nothing(first, item) and self._merge(first, at, related=False)
            latest |= dict.fromkeys(shared, first if merged else at)

    def _keeps_nothing(self, one: int, later: Group) -> bool:
        """Is there nothing that one group alone reads and that had to be kept until the later one runs?"""
        return all(name not in self.maker for name in self.items[one].reads - later.reads)

    def _ends(self, group: Group, read: frozenset[str]) -> bool:
        """Is all that it makes made element by element, and read by nobody?"""
        plain = all(m.pointwise and m.step.loops == group.spine for m in group.members)
        return plain and read.isdisjoint(group.makers)

    def _is_large(self, name: str, count: int) -> bool:
        """Has the buffer an element for each of so many iterations?"""
        elements = self.program.buffers[name].extent.value
        return elements is not None and elements >= count > 0

    def merge_totals(self) -> None:
        """Make few kernels of many that reduce tensors of equal ranges to numbers, such as the norms of gradients."""
        readers: dict[str, list[int]] = {}
        for at, item in enumerate(self.items):
            for name in item.reads:
                readers.setdefault(name, []).append(at)
        latest: dict[tuple[Index, ...], int] = {}
        for at, item in enumerate(self.items):
            if not isinstance(item, Group) or not item.members or not self._is_total(item):
                continue
            sizes = tuple(v.size for v in item.spine)
            first = latest.get(sizes)
            if first is None or not self._outlive(first, at, readers) or not self._merge(first, at, related=False):
                latest[sizes] = at

    def merge_brief(self) -> None:
        """Make few kernels of many that take about as long as their launch, have equal ranges, and are neighbours."""
        latest: dict[tuple[object, ...], int] = {}
        for at, item in enumerate(self.items):
            if not isinstance(item, Group) or not item.members or not self._is_brief(item):
                continue
            alike = (item.depth if item.has_phases else None, tuple(v.size for v in item.spine))
            first = latest.get(alike)
            near = first is not None and at - first <= NEIGHBOURS and self._may_be_products(first, at)
            if first is None or not near or not self._merge(first, at, related=False):
                latest[alike] = at

    def _may_be_products(self, *numbers: int) -> bool:
        """Are there no more sums over two loops than a backend that multiplies tiles of matrices takes together?"""
        groups = [group for at in numbers if isinstance(group := self.items[at], Group)]
        sums = [m for group in groups for m in group.members if m.step.reduced and len(m.step.vars) > 1]
        return len(sums) <= MOST_TOGETHER

    def _is_brief(self, group: Group) -> bool:
        """Is little read, written and computed, and nothing reduced over rows?"""
        if group.is_single_row or any(m.deferred or m.step.apart or m.step.kind in SCANS for m in group.members):
            return False
        puts = [m.step for m in group.members if m.step.kind == SCATTER]
        changed = frozenset().union(*(step.reads | step.writes for step in puts))
        total = 0.0
        for name in {*group.reads, *group.makers} - changed:
            buffer = self.program.buffers[name]
            total += (buffer.extent.value or self.policy.brief) * buffer.dtype.itemsize
        for step in (m.step for m in group.members):
            count = iterations(step.loops)
            if count is None or total > self.policy.brief:
                return False
            total += count * (cost(step.value) / max(self.policy.recompute, 1) + (step.kind == SCATTER))
        return total <= self.policy.brief

    def _is_total(self, group: Group) -> bool:
        count = math.prod(v.size.value or self.policy.alike for v in group.spine)
        plain = all(m.step.reduced and m.step.loops == group.spine for m in group.members)
        totals = group.is_single_row or all(m.deferred and not m.step.vars for m in group.members)
        return plain and totals and count <= self.policy.alike

    def _outlive(self, one: int, other: int, readers: Mapping[str, Sequence[int]]) -> bool:
        """Is all that the first group reads needed once the other one has run, too? Nothing is kept for it then."""
        first = self.items[one]
        after = self.precedence.before
        return all(
            name not in self.maker or any(after[at] >> other & 1 for at in readers[name]) for name in first.reads
        )

    def _read_elsewhere(self) -> frozenset[str]:
        """What is read of what other items make, or must be in memory.

        Those do not count that only copy it to where it shall be at the end. No merge of groups that nobody else reads
        changes it.
        """
        found = {name for name, buffer in self.program.buffers.items() if buffer.home is not None}
        found |= {check[0] for check in self.program.checks}
        for item in self.items:
            if isinstance(item, Group):
                found |= item.reads - item.makers.keys()
            elif item.reason != LAST:
                found |= item.reads
        return frozenset(found)

    def _is_last(self, group: Group, read: frozenset[str]) -> bool:
        count = math.prod(v.size.value or self.policy.alike for v in group.spine)
        return count <= self.policy.alike and self._ends(group, read)

    def _merge(self, one: int, other: int, *, related: bool = True) -> bool:
        """Put the members of ``other`` into ``one``, and nothing into ``other``."""
        first, second = self.items[one], self.items[other]
        assert isinstance(first, Group) and isinstance(second, Group)
        if self.precedence.has_between(one, other) or (related and not _share(first, second)):
            return False
        members = sorted((*first.members, *second.members), key=lambda m: m.number)
        reads = (first.reads | second.reads) - first.makers.keys() - second.makers.keys()
        if has_many_buffers(len(members), reads, self.policy):
            return False
        group = self._group([(m.step, m.number) for m in members])
        rows = next((g for g in (first, second) if 0 < g.depth < len(g.spine)), None)
        if group is None and rows is not None and self.policy.turned_row:
            group = self._group([(like_rows(rows, m.step), m.number) for m in members])
        if group is None or (related and not group.depth):
            return False
        self.items[one], self.items[other] = group, Group((), 0, ())
        self.maker |= dict.fromkeys((m.step.buffer for m in second.members), one)
        self.precedence.unite(one, other)
        return True

    def _group(self, steps: Sequence[tuple[Computed, int]]) -> Group | None:
        """All the steps, with their numbers, as one group; None if they cannot be one."""
        group: Group | None = alone(*steps[0], self.policy, self.readers)
        for step, number in steps[1:]:
            group = self._joined(group, step, number) if group else None
        return group

    def _joined(self, group: Group, step: Computed, number: int) -> Group | None:
        steps = [step, *(m.step for m in group.members)]
        scatters = [s for s in steps if s.kind == SCATTER]
        if len(scatters) > 1 and not all(map(self._may_scatter_together, scatters)):
            return None
        if len(scatters) < len(steps) and not all(self._is_filled(s) for s in scatters):
            return None
        return join(group, step, number, self.names)

    def _is_filled(self, scatter: Computed) -> bool:
        """Does it change what was filled for it? Others change memory in place where nothing beside them needs it."""
        return isinstance(scatter.value, Put) and scatter.value.buffer in self.fills

    def _may_scatter_together(self, scatter: Computed) -> bool:
        """Do so many elements go to each place that threads wait for each other? They do less, with more places.

        Of few elements, the launch is what takes time.
        """
        count, places = iterations(scatter.loops), self.program.buffers[scatter.buffer].extent.value
        if count is None or places is None:
            return False
        return count >= CROWDED * places or count <= self.policy.brief // BRIEFER

    def _candidates(self, step: Computed, needs: int) -> Iterable[int]:
        makers = [at for at in sorted(bits(needs), reverse=True) if isinstance(self.items[at], Group)]
        yield from makers
        barrier = self.ordered if self.ordered >= 0 and self._writes(self.ordered) else -1
        for at in range(len(self.items) - 1, max(barrier, len(self.items) - 1 - NEIGHBOURS), -1):
            group = self.items[at]
            if at not in makers and isinstance(group, Group) and self._shares(group, step):
                yield at

    def _shares(self, group: Group, step: Computed) -> bool:
        """Is there something to be read once instead of twice? A number, or a row of all rows, is in the cache.

        Or do both fill small buffers, and read nothing, or compute with numbers? Then they are one launch.
        """
        count = iterations(step.loops)
        if not step.reads and not group.reads:
            return count is not None and count <= FEW
        if (self.policy.alike or step.late) and not step.loops and not group.spine:  # one thread has the work of both
            return True
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
        return [self.items[at] for at in self.precedence.order(self.numbers)]


def fuse(steps: Sequence[Step], program: Program, names: Names, policy: Policy = CPU) -> list[Group | Extern]:
    """Groups and extern calls in an order in which they may run."""
    fusion = Fusion(program, names, policy, _readers(steps, program))
    for number, step in enumerate(steps):
        fusion.add(step, number)
    fusion.merge_readers()
    if policy.alike:
        fusion.merge_totals()
        fusion.merge_alike()
    if policy.brief:
        fusion.merge_brief()
    return [item for item in fusion.ordered_items() if isinstance(item, Extern) or item.members]


def _readers(steps: Sequence[Step], program: Program) -> dict[str, set[int]]:
    """Buffer -> the numbers of the steps that read it, and -1 if it must be in memory."""
    found: dict[str, set[int]] = {name: {-1} if b.home is not None else set() for name, b in program.buffers.items()}
    for name in (*(o.buffer for o in program.outputs if isinstance(o, Strided)), *(c[0] for c in program.checks)):
        found[name].add(-1)
    for number, step in enumerate(steps):
        for name in step.reads:
            found[name].add(number)
    return found


def _share(first: Group, second: Group) -> bool:
    """Would a kernel of both read or write less than one of each?"""
    return bool(first.reads & second.reads or first.reads & second.makers.keys() or second.reads & first.makers.keys())
