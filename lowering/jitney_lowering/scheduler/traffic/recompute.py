"""What several kernels read: is it kept in memory, or computed by each of them?

A buffer costs its bytes, once written and once for each kernel that reads it. To compute it again costs the operations,
and what the kernel does not read anyway. Which is less depends on which kernels there are, so this looks at groups that
``fuse`` made, rewrites the steps, and takes the groups of the new ones if these are better by the same count.

A kernel's time as the longer of what it moves and what it computes, with operands counted, kept more: on an H200 the
programs of ``benchmarks/breadth`` that this concerns took 1.07 times as long then, and more memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jitney_lowering.index import Index, index, product
from jitney_lowering.index_value import at_computed_place
from jitney_lowering.ir.loops import Computed, Extern, Program, Step, Strided
from jitney_lowering.ir.values import FEW_LINES, LINE, Load, Value, cost, masked, rebuild, walk
from jitney_lowering.policy import Policy
from jitney_lowering.scheduler.group import Group
from jitney_lowering.scheduler.simplify import without_dead
from jitney_lowering.scheduler.size_guess import guess
from jitney_lowering.scheduler.spaces import coordinates
from jitney_lowering.scheduler.traffic import estimate
from jitney_lowering.scheduler.traffic.estimate import CACHED, bytes_of, lines, loaded, pinned, work
from jitney_lowering.scheduler.traffic.fused import Fused
from jitney_lowering.scheduler.traffic.masks import narrowed, ranges
from jitney_lowering.scheduler.traffic.points import along_loops

MOST_OPERATIONS = 1500  # cost of what is computed for one element
MOST_LOADS = 40
MOST_VALUES = 4000  # in what is computed again: a network of butterflies has twice as many with each stage
SLACK = 1.1  # times as much memory is no more


@dataclass(frozen=True)
class _Recipe:
    """How an element of a buffer is computed: a pointwise step whose value reads what is in memory."""

    step: Computed
    value: Value
    seen: dict[Load, Value | None] = field(default_factory=dict, compare=False)

    @functools.cached_property
    def work(self) -> float:
        """See ``estimate.work``."""
        return work(self.value, self.step.loops)

    def at(self, read: Load) -> Value | None:
        """What ``read`` loads; None if the maker's iteration cannot be told from the place."""
        if read not in self.seen:
            self.seen[read] = self._at(read)
        return self.seen[read]

    def _at(self, read: Load) -> Value | None:
        seen = iteration(self.step, read, computed=True)
        if seen is None:
            return None
        if read.indirect:
            found = at_computed_place(self.value, dict(read.indirect), seen)
        else:
            found = self.value if seen is _same else rebuild(self.value, index=seen)
        return found if read.mask is None else masked(found, read.mask)


def iteration(step: Computed, read: Load, *, computed: bool = False) -> Callable[[Index], Index] | None:
    """From what a pointwise step has at an iteration to that at the one which fills what is read; None if unclear.

    ``computed``: may the place be a computed one? There are ``read.indirect``'s atoms in the iteration then.
    """
    if read.indirect and not computed:
        return None
    there, back = ({}, {}) if read.mask is None else narrowed(read.mask)  # in a part of a concatenation, say
    table = coordinates(step, read.index.substitute(there))
    if table is None:
        return None
    if not back and all(table[var] is var for var in table):
        return _same
    known = table
    return lambda i: i.substitute(known).substitute(back)


def _same(i: Index) -> Index:
    return i


@dataclass
class Recomputation:
    """Decides for each buffer, in the order of the program, and rewrites the steps.

    Args:
        program: the graph.
        items: groups and operators as ``fuse`` made them of ``steps``.
        steps: the program's, cleaned.
        policy: what suits the machine.
        replaced: inputs that get a new value: nobody may read them longer than asked.
        saving: is a buffer computed again only if what it is computed from, held longer for that, is hardly larger?
        whole: does a kernel that goes, as all that it makes is computed elsewhere, spare what it reads? It may be read
            there instead, which is told only when there are groups again.
    """

    program: Program
    items: Sequence[Group | Extern]
    steps: Sequence[Step]
    policy: Policy
    replaced: Collection[str] = ()
    saving: bool = False
    whole: bool = False
    recipes: dict[str, _Recipe] = field(default_factory=dict)
    values: dict[str, Value | None] = field(default_factory=dict)  # see ``_value``

    def __post_init__(self) -> None:
        self.maker = {name: n for n, item in enumerate(self.items) for name in _made(item)}
        self.readers: dict[str, set[int]] = {}
        for number, item in enumerate(self.items):
            for name in loaded(item):
                self.readers.setdefault(name, set()).add(number)
        self.results = {o.buffer for o in self.program.outputs if isinstance(o, Strided)}
        self.reads = [set(loaded(item)) for item in self.items]
        self.fixed = pinned(self.program, self.items)
        changing = frozenset().union(*(i.written for i in self.items if isinstance(i, Extern)))
        self.moving = changing | frozenset(self.replaced)
        self.known = {s.buffer: s for s in self.steps if isinstance(s, Computed) and s.kind == "pointwise"}
        self.work = [self._size(item) for item in self.items]

    def rewritten(self) -> list[Step] | None:
        """The steps with what is computed again in place of loads; None if nothing is."""
        for step in self.known.values():
            self._consider(step)
        if not self.recipes:
            return None
        return [self._with_recipes(step) if isinstance(step, Computed) else step for step in self.steps]

    def _consider(self, step: Computed) -> None:
        name, home = step.buffer, self.maker.get(step.buffer)
        if home is None or name in self.fixed:
            return
        outside = self.readers.get(name, set()) - {home}
        if self._is_picked_from(name, home):  # by its own group, which reads it from memory then
            outside = outside | {home}
        if not outside:
            return
        value = self._value(step, home)
        if value is None or self.program.buffers[name].dtype is not value.dtype:
            return
        if _gathers(value) and not self._is_read_once(step):
            return  # what is gathered is not gathered twice
        operands = {v.buffer for v in walk(value) if isinstance(v, Load)}
        if operands & self.moving:
            return
        recipe = _Recipe(step, value)
        group = self.items[home]
        assert isinstance(group, Group)
        new = sum(self._bytes(o) for o in operands if self._is_new(o, home))
        if self.saving and self._held_longer(operands, outside) > SLACK * self._bytes(name):
            return
        gained: float = self._bytes(name) + sum(self._read(name, number) for number in outside) - new
        if self._may_go(group):  # the kernel, if all that it makes is computed elsewhere
            gained += estimate.LAUNCH / len(group.members)
        if self.whole and self._is_last(name, group):
            gained += sum(self._bytes(o) for o in self.reads[home])
        for number in outside:
            lost = self._loss(recipe, operands, number)
            if lost is None:
                return
            gained -= lost
        if gained > 0:
            self._accept(recipe, operands, outside)

    def _is_picked_from(self, name: str, number: int) -> bool:
        """Does the group read the buffer at computed places?"""
        group = self.items[number]
        assert isinstance(group, Group)
        return any(load.indirect for load in _reads(group, name))

    def _may_go(self, group: Group) -> bool:
        """Can all that others need of the group be computed again?"""
        return all(b in self.known or not self.readers.get(b, set()) - {self.maker[b]} for b in group.makers)

    def _is_last(self, name: str, group: Group) -> bool:
        """Does nobody need what the group makes besides, as it is computed elsewhere?"""
        others = [b for b in group.makers if b != name and b not in self.recipes]
        home = self.maker[name]
        return not any(b in self.fixed or self.readers.get(b, set()) - {home} for b in others)

    def _held_longer(self, operands: Collection[str], outside: Collection[int]) -> int:
        """Bytes of temporaries that would be read after what reads them last now."""
        end = max(outside)
        dying = [o for o in operands if o in self.maker and max(self.readers.get(o, ()), default=0) < end]
        return sum(self._bytes(o) for o in dying if o not in self.results)

    def _loss(self, recipe: _Recipe, operands: Collection[str], number: int) -> float | None:
        """Bytes that a group reads more, with operations as bytes; None if it cannot compute the buffer."""
        group, step = self.items[number], recipe.step
        assert isinstance(group, Group)
        each = recipe.work
        reads = _reads(group, step.buffer)
        if step.buffer in group.makers:  # what it reads where it computes it costs nothing
            reads = {load: times for load, times in reads.items() if load.indirect}
        if self.work[number] + each * len(reads) > MOST_OPERATIONS:
            return None
        if any(iteration(step, load, computed=True) is None for load in reads):
            return None
        operations = each * sum(reads.values())
        operations += CACHED * (len(reads) - 1) * (len(operands) - 1) * max(reads.values())
        more = [o for o in operands if o not in self.reads[number] and self.maker.get(o) != number]
        if len(self.reads[number]) + len(more) > MOST_LOADS:
            return None
        widest = guess(product(step.vars))
        itemsize = self.program.buffers[recipe.step.buffer].dtype.itemsize
        again = [o for o in more if FEW_LINES < self._bytes(o) < widest * itemsize]
        operations += LINE * lines(recipe.value, step.loops, again) * max(reads.values())
        sizes = (min(self._bytes(o), widest * self.program.buffers[o].dtype.itemsize) for o in more)
        most = sum(estimate.SECTOR * times for times in reads.values()) if all(r.indirect for r in reads) else math.inf
        return sum(min(size, most) for size in sizes) + operations / self.policy.recompute

    def _accept(self, recipe: _Recipe, operands: Collection[str], outside: Collection[int]) -> None:
        name = recipe.step.buffer
        self.recipes[name] = recipe
        self.readers[name] -= set(outside)
        for number in outside:
            group = self.items[number]
            assert isinstance(group, Group)
            self.work[number] += len(_reads(group, name)) * recipe.work
            self.reads[number] |= {o for o in operands if self.maker.get(o) != number}
            self.reads[number].discard(name)
        for operand in operands:
            self.readers.setdefault(operand, set()).update(outside)

    def _value(self, step: Computed, home: int) -> Value | None:
        """What a step computes, in terms of what is in memory anyway; None if that cannot be.

        It stays the same: what it is made of comes before it, and has been decided.
        """
        if step.buffer not in self.values:
            self.values[step.buffer] = self._in_memory(step.value, home)
        return self.values[step.buffer]

    def _is_read_once(self, step: Computed) -> bool:
        """Is no element read more than once, by one other group, as those of a part of a concatenation are?"""
        readers = self.readers[step.buffer]
        if len(readers) != 1 or self.maker[step.buffer] in readers:
            return False
        group = self.items[next(iter(readers))]
        assert isinstance(group, Group)
        found = [(m.step.loops, load) for m in group.members for load in m.loads if load.buffer == step.buffer]
        if len(found) != 1:
            return False
        loops, load = found[0]
        confined = {} if load.mask is None else ranges(load.mask)
        sizes = [high - low for low, high in (confined.get(v, (index(0), v.size)) for v in loops)]
        return math.prod(map(guess, sizes)) <= guess(product(step.vars))

    def _in_memory(self, value: Value, home: int) -> Value | None:
        leaf: dict[Any, Value] = {}
        for read in walk(value):
            if not isinstance(read, Load):
                continue
            recipe = self.recipes.get(read.buffer)
            if recipe is None and self._is_new(read.buffer, home):
                step = self.known.get(read.buffer)
                inner = None if step is None else self._value(step, home)
                recipe = None if step is None or inner is None or _gathers(inner) else _Recipe(step, inner)
                if step is not None and recipe is None:
                    return None
            if recipe is not None:
                found = recipe.at(read)
                if found is None:
                    return None
                leaf[read] = found
        made = rebuild(value, leaf) if leaf else value
        return None if leaf and sum(1 for _ in walk(made)) > MOST_VALUES else made

    def _is_new(self, name: str, home: int) -> bool:
        """Is it made by that group, for itself alone?"""
        return self.maker.get(name) == home and name not in self.fixed and self.readers.get(name, set()) <= {home}

    def _with_recipes(self, step: Computed) -> Computed:
        """The step with recipes in place of loads, also of what its own group made: that may be another one now."""
        leaf: dict[Any, Value] = {}
        for read in walk(step.value):
            if isinstance(read, Load) and read.buffer in self.recipes:
                found = self.recipes[read.buffer].at(read)
                if found is not None:
                    leaf[read] = found
        return along_loops(replace(step, value=rebuild(step.value, leaf))) if leaf else step

    def _read(self, name: str, number: int) -> int:
        """Bytes of a buffer that a group loads."""
        return estimate.read_bytes(self.program, self.items[number], name)

    def _bytes(self, name: str) -> int:
        return bytes_of(self.program, name)

    def _size(self, item: Group | Extern) -> float:
        if isinstance(item, Extern):
            return 0.0
        return cost(*(member.step.value for member in item.members))


def less_work(fused: Fused, replaced: Collection[str] = ()) -> Fused:
    """The same, or steps that compute more and move less, if they are better.

    Args:
        fused: steps, cleaned, and their groups.
        replaced: inputs that get a new value.
    """
    for saving in (False, True):
        better = [other for other in _candidates(fused, replaced, saving) if other.time < fused.time]
        for other in sorted(better, key=lambda other: other.time):
            if other.peak <= fused.peak * SLACK:
                return other
        if not better:
            break
    return fused


def _candidates(fused: Fused, replaced: Collection[str], saving: bool) -> Iterator[Fused]:
    """What may be better, each with other buffers that are computed again."""
    seen: list[Collection[str]] = [()]
    for whole in (False, True):
        made = Recomputation(fused.program, fused.items, fused.steps, fused.policy, replaced, saving, whole)
        rewritten = made.rewritten()
        if rewritten is not None and made.recipes.keys() not in seen:
            seen.append(made.recipes.keys())
            yield fused.again(without_dead(rewritten, fused.program))


def _gathers(value: Value) -> bool:
    """Is something loaded at places that tensors hold?"""
    return any(
        isinstance(v, Load) for read in walk(value) if isinstance(read, Load) for _, i in read.indirect for v in walk(i)
    )


def _reads(group: Group, buffer: str) -> dict[Load, int]:
    """The places at which a group reads a buffer, and how often."""
    found: dict[Load, int] = {}
    for member in group.members:
        for load in member.loads:
            if load.buffer == buffer:
                found[load] = max(found.get(load, 0), guess(product(member.step.loops)))
    return found


def _made(item: Group | Extern) -> frozenset[str]:
    return frozenset(item.makers) if isinstance(item, Group) else item.writes
