"""A group of steps that become one kernel, and when a step may join one.

All members go through the group's outer loops together: an iteration of those is a *row*. What a member reads of
another one must have been made in the same row. Rows may run in any order and on any thread.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from jitney_lowering.index import Index, Names, Var, index
from jitney_lowering.ir.loops import POINTWISE, SCANS, SCATTER, Computed
from jitney_lowering.ir.values import Load, Position, Put, Value, cost, walk
from jitney_lowering.policy import CPU, LINE, Policy
from jitney_lowering.scheduler.simplify import substituted
from jitney_lowering.scheduler.single_row import ROW, is_short, is_small, is_total, with_row
from jitney_lowering.scheduler.spaces import Match, coordinates, match

IN_REGISTERS = 4  # of as many members at least one is stored; about one, where rows are written out
UNREDUCED = 16  # times shorter are rows worth being shared where nothing is reduced
WAITED = 1 << 19  # elements: among fewer, threads have waited sooner than another kernel is launched
WIDE, WIDER = 16384, 8  # iterations for a row, and times as many as are reduced in it
COLUMNS = 1024  # results that are worth being computed side by side, where each is of few elements
MOST_OPERATIONS = 1500  # cost of what many members compute, whose results are in registers
_SOMEBODY = frozenset({-1})
_NOT_WRITTEN_OUT = (*SCANS, SCATTER)  # kinds of steps
PARTIAL_KINDS = frozenset({"sum", "prod", "max", "min", "any", "all"})


@dataclass(frozen=True)
class Member:
    """A step whose first loops are the group's. ``deferred``: it reduces over rows, so it is done after all of them."""

    step: Computed
    number: int
    deferred: bool = False

    @functools.cached_property
    def loads(self) -> tuple[Load, ...]:
        """Every place that it reads."""
        return tuple(v for v in walk(self.step.value) if isinstance(v, Load))

    @property
    def pointwise(self) -> bool:
        """Is it no reduction?"""
        return self.step.kind in POINTWISE

    @property
    def elementwise(self) -> bool:
        """Is there a result in each iteration, pointwise or running?"""
        return self.pointwise or self.step.kind in SCANS

    def limit(self, matched: int) -> int:
        """How many of its first loops may be outer loops."""
        if self.pointwise or self.deferred:
            return matched
        return min(matched, next(i for i, v in enumerate(self.step.loops) if v in self.step.reduced))

    def floor(self, policy: Policy) -> int:
        """How many of its first loops must be outer loops: positions cannot be accumulated, so one result a row.

        A scan has its row to itself for the same reason.
        """
        if self.step.kind.startswith("arg") or self.step.kind in SCANS:
            return len(self.step.vars)
        alone = policy.one_result and not self.pointwise and not self.deferred
        return len(self.step.vars) if alone else 0


@dataclass(frozen=True)
class Group:
    """Members in the order of the program; the first ``depth`` loops of ``spine`` are the rows.

    ``readers``: buffer -> the numbers of the steps that read it, and -1 if it must be in memory.
    """

    spine: tuple[Var, ...]
    depth: int
    members: tuple[Member, ...]
    policy: Policy = CPU
    readers: Mapping[str, Set[int]] = field(default_factory=dict, compare=False, repr=False)

    @functools.cached_property
    def makers(self) -> dict[str, Member]:
        """Buffer -> the member that fills it."""
        return {m.step.buffer: m for m in self.members}

    @functools.cached_property
    def reads(self) -> frozenset[str]:
        """Buffers that it loads from and does not fill."""
        changed = frozenset(name for m in self.members if m.step.kind == SCATTER for name in m.step.reads)
        return (changed | {load.buffer for m in self.members for load in m.loads}) - self.makers.keys()

    @property
    def is_single_row(self) -> bool:
        """Is all of it one row? See ``single_row.py``."""
        return self.spine[:1] == (ROW,)

    @property
    def has_phases(self) -> bool:
        """Must some member wait for the whole row of another one?"""
        return any(
            (not m.deferred and not m.pointwise) or any(not self.aligned(m, load) for load in m.loads)
            for m in self.members
        )

    @property
    def row(self) -> int | None:
        """Iterations of the longest nest of loops in a row, for one that can be written out; None for others."""
        if not self.depth or not all(map(self._is_plain, self.members)):
            return None
        lengths = [iterations(loops) for loops in {m.step.loops[self.depth :] for m in self.members}]
        known = [n for n in lengths if n is not None]
        return max(known, default=None) if len(known) == len(lengths) and 0 not in known else None

    def _is_plain(self, member: Member) -> bool:
        plain = not member.deferred and member.step.kind not in _NOT_WRITTEN_OUT
        return plain and len(member.step.loops) >= self.depth

    def extended(self, member: Member, depth: int) -> Group:
        """The group with one more member. What is known of its buffers is not looked for again."""
        made = replace(self, depth=depth, members=(*self.members, member))
        changed = member.step.reads if member.step.kind == SCATTER else frozenset()
        made.__dict__["makers"] = makers = {**self.makers, member.step.buffer: member}
        made.__dict__["reads"] = (self.reads | changed | {load.buffer for load in member.loads}) - makers.keys()
        return made

    def aligned(self, member: Member, load: Load) -> bool:
        """Does the member read what was made in the same iteration, or outside of the group?"""
        return is_aligned(self.makers.get(load.buffer), member, load)


def is_aligned(maker: Member | None, member: Member, load: Load) -> bool:
    """Is what ``member`` reads made by ``maker`` in the same iteration of the same loops?"""
    if maker is None:
        return True
    return maker.elementwise and load.index is maker.step.place and maker.step.loops == member.step.loops


def alone(
    step: Computed, number: int, policy: Policy = CPU, readers: Mapping[str, Set[int]] = MappingProxyType({})
) -> Group:
    """A group of one step; ``readers``: see ``Group``."""
    if is_total(step) and is_small([step], policy):
        step = with_row(step)
    elif _is_shared(step, policy):
        step = substituted(step, {}, (*step.reduced, *step.vars))
    member = Member(step, number, step.loops[:1] != () and step.loops[0] in step.reduced)
    if member.deferred and (_too_many(step.vars, policy) or _are_short_columns(step, policy)):
        # The results one by one, each from all that it needs.
        member = Member(_by_results(step), number, deferred=not step.vars)
    elif not member.deferred and member.limit(len(step.loops)) < member.floor(policy):
        member = Member(_by_results(step), number)
    loops = step.loops if member.deferred else member.step.loops
    return Group(loops, member.limit(len(step.loops)), (member,), policy, readers)


def _by_results(step: Computed) -> Computed:
    return substituted(step, {}, (*step.vars, *step.reduced))


def _is_shared(step: Computed, policy: Policy) -> bool:
    """Is one result worth the work of several threads?"""
    if step.kind not in PARTIAL_KINDS or policy.long_row is None or not step.vars:
        return False
    rows, length = iterations(step.vars), iterations(step.reduced)
    if rows is None or length is None or rows >= policy.few_rows:
        return False
    return length * _element(step.value, policy) >= policy.long_row


def _element(value: Value, policy: Policy) -> float:
    """How long an element takes, as times what loading one of four bytes does, which goes on beside operations."""
    return max(1, cost(value) / (4 * policy.recompute)) if policy.recompute else 1


def iterations(loops: Sequence[Var]) -> int | None:
    """How often all these loops go round together; None if that depends on symbolic sizes."""
    total = index(1)
    for var in loops:
        total = total * var.size
    return total.value


def _too_many(loops: Sequence[Var], policy: Policy) -> bool:
    count = iterations(loops)
    return count is not None and count > policy.partial_limit


def _are_short_columns(step: Computed, policy: Policy) -> bool:
    """Are there many results, each of so few elements that a thread's own accumulators cost as much as these?"""
    length, count = iterations(step.reduced), iterations(step.vars)
    return (
        policy.row_lanes and length is not None and length <= policy.short_row and (count is None or count >= COLUMNS)
    )


def _few(loops: Sequence[Var], policy: Policy) -> bool:
    count = iterations(loops)
    return count is not None and count < policy.few_rows


def join(group: Group, step: Computed, number: int, names: Names) -> Group | None:
    """The group with one more member, or None if it cannot be one."""
    if any(m.deferred and m.step.kind not in PARTIAL_KINDS for m in group.members):
        return None  # the position of an extreme of everything: a kernel of its own
    inside = group.makers.keys() | {step.buffer}
    if has_many_buffers(len(group.members) + 1, (group.reads | step.reads) - inside, group.policy):
        return None
    steps = (step, *(m.step for m in group.members))
    if any(s.apart or s.late is not step.late for s in steps):
        return None
    if group.is_single_row or (is_total(step) and _is_map(group) and is_small(steps, group.policy)):
        if not is_small(steps, group.policy):
            return None
        group, step = _as_single_row(group), with_row(step)
    found = match(group.spine, step.loops, names)
    scatters = [s for s in steps if s.kind == SCATTER]
    if scatters and not (_scatter_together(group, step, found) or _scatters_beside(group, step, found, scatters)):
        return None  # who reads what it makes waits for all of it
    if (not found.count and (group.spine or step.loops)) or _is_wider(group, step):
        return None
    members = group.members
    if found.first:
        members = tuple(_refined(m, found.first, found.spine) for m in members)
    # What is the member's own has variables of its own: the same one may be elsewhere in the spine.
    own = tuple([names.var(v.size, "v") if v in found.spine else v for v in found.rest])
    renamed: dict[Var, Index] = dict(zip(found.rest, own, strict=True))
    step = substituted(step, found.second | renamed, (*found.spine[: found.count], *own))
    spine = found.spine if len(step.loops) <= len(found.spine) else step.loops
    depth = group.depth if not found.first else _new_depth(group, found.first)
    if found.rest and found.count < len(found.spine):
        spine = found.spine  # they part here: the rest is each member's own
    for member in _as_members(step, number, depth, group.policy):
        if scatters and member.deferred:
            continue
        joined = _placed(replace(group, spine=spine, depth=depth, members=members), member, found.count)
        if joined is not None:
            return joined
    return None


def _is_map(group: Group) -> bool:
    """Does it reduce nothing?"""
    return all(m.step.kind == "pointwise" for m in group.members)


def _as_single_row(group: Group) -> Group:
    if group.is_single_row:
        return group
    members = tuple(replace(m, step=with_row(m.step)) for m in group.members)
    return replace(group, spine=(ROW, *group.spine), depth=1, members=members)


def _scatter_together(group: Group, step: Computed, found: Match) -> bool:
    """Does each iteration of the same loops scatter to several buffers, whose threads wait for each other less?"""
    plain = all(s.kind == SCATTER for s in (step, *(m.step for m in group.members)))
    return plain and group.policy.scatters and found.count == len(found.spine) and not found.rest


def _scatters_beside(group: Group, step: Computed, found: Match, scatters: Sequence[Computed]) -> bool:
    """Does a scatter take what the group computes, in the same iterations? So it need not be in memory for it."""
    if not group.policy.scatters or group.is_single_row or any(m.deferred for m in group.members):
        return False
    written_out = max(group.policy.unrolled_row, group.policy.scratch_row, group.policy.shared_row)
    if all(m.step.kind == SCATTER for m in group.members) or found.rest or 1 < (group.row or 1) <= written_out:
        return False
    if step.kind != SCATTER:
        return True
    if _scatters_rows(step):  # whose places a kernel of its own looks up once for each
        return False
    begins = {s.value.buffer for s in scatters if isinstance(s.value, Put)}
    return begins.isdisjoint(group.makers) and not step.reads.isdisjoint(group.makers)


def _scatters_rows(step: Computed) -> bool:
    """Do the computed places stay the same along the innermost loop?"""
    assert isinstance(step.value, Put)
    computed = walk(*(value for _, value in step.value.indirect))
    return bool(step.loops) and not any(
        isinstance(v, Load | Position) and step.loops[-1] in v.index.atoms for v in computed
    )


def _is_wider(group: Group, step: Computed) -> bool:
    """Is much more done for each of a few rows than what is reduced there? Many threads do it better afterwards."""
    rows, count = iterations(group.spine[: group.depth]), iterations(step.loops)
    lengths = [iterations(m.step.reduced) for m in group.members if m.step.reduced and not m.deferred]
    if step.kind != "pointwise" or group.policy.long_row is None or rows is None or count is None or not lengths:
        return False
    each = count // max(rows, 1)
    return rows < group.policy.few_rows and each >= WIDE and all(n is not None and n * WIDER <= each for n in lengths)


def _as_members(step: Computed, number: int, depth: int, policy: Policy) -> list[Member]:
    """How the step may be a member, best first: a reduction within the row, or one over rows."""
    if step.kind in POINTWISE:
        return [Member(step, number)]
    first = next(i for i, v in enumerate(step.loops) if v in step.reduced)
    deferred = Member(step, number, deferred=True)
    may_wait = step.kind in PARTIAL_KINDS and not _too_many(step.vars, policy)
    waiting = [deferred] if may_wait else []
    if not first or _is_shared(step, policy):
        return waiting
    rowwise = [Member(step, number)]
    is_parted = (
        first < depth and _few(step.loops[:first], policy) and not is_short([(step.reduced, step.value)], policy)
    )
    return waiting + rowwise if is_parted else rowwise + waiting


def _placed(group: Group, member: Member, matched: int) -> Group | None:
    policy = group.policy
    limit = min(group.depth, member.limit(matched))
    lowest = max(0 if not group.spine else 1, *(m.floor(group.policy) for m in (member, *group.members)))
    for depth in range(limit, lowest - 1, -1):
        if depth < group.depth and _few(group.spine[:depth], policy) and not _few(group.spine[: group.depth], policy):
            if not is_short([(m.step.loops[depth:], m.step.value) for m in (member, *group.members)], policy):
                return None
        if all(_reachable(group, member, load, group.spine[:depth]) for load in member.loads):
            made = group.extended(member, depth)
            suits = _fits(made) and _goes_together(made) and not _is_lopsided(made) and not _is_scattered(made, member)
            return made if suits and not _waits_in_vain(made, member) else None
    return None


def _waits_in_vain(group: Group, member: Member) -> bool:
    """Would rows that are short, or few, wait for their own memory, where other kernels go through all of it sooner?"""
    least, outside = group.policy.waiting_row, group.spine[: group.depth]
    makers = {m for load in member.loads if (m := group.makers.get(load.buffer)) and not group.aligned(member, load)}
    makers = {m for m in makers if m.elementwise and len(m.step.loops) > group.depth}  # else a row has one
    if not least or not outside or not makers:
        return False
    rows, lengths = iterations(outside), [iterations(m.step.loops[group.depth :]) for m in (member, *makers)]
    if rows is None or None in lengths:
        return False
    length = max(n or 0 for n in lengths)
    return rows * length > WAITED and least > min(rows, length) and length > group.policy.scratch_row


def _is_scattered(group: Group, member: Member) -> bool:
    """Would rows read a few elements of each of many lines of memory, which an own kernel would read whole?"""
    limit, inside = group.policy.scattered_row, member.step.loops[group.depth :]
    rounds = iterations(inside)
    if not limit or not member.pointwise or not inside or rounds is None or rounds * LINE <= limit:
        return False

    def near(load: Load, var: Var) -> bool:
        step = load.index.stride(var)
        return step is not None and step.value is not None and 0 < abs(step.value) * load.dtype.itemsize < LINE

    def far(load: Load, var: Var) -> bool:
        step = load.index.stride(var)
        return step is not None and step.value is not None and abs(step.value) * load.dtype.itemsize >= LINE

    outside = group.spine[: group.depth]
    loads = [load for load in member.loads if load.buffer not in group.makers and not load.indirect]
    return any(far(load, inside[-1]) and any(near(load, var) for var in outside) for load in loads)


def has_many_buffers(members: int, reads: Set[str], policy: Policy) -> bool:
    """Has a kernel of so many members too many buffers, wherever their values are kept? Soon told; see ``_fits``.

    Args:
        members: how many there are.
        reads: buffers that they read and do not fill.
        policy: of the backend.
    """
    return len(reads) + members // IN_REGISTERS > policy.buffer_limit


def _fits(group: Group) -> bool:
    """Has the kernel not too many buffers? Those of rows that are written out are values in registers, most of them.

    So is what only members read, each in its own iteration.
    """
    members, row, limit = len(group.members), group.row, group.policy.buffer_limit
    if members + len(group.reads) <= limit:
        return True
    if members > IN_REGISTERS and row is not None and row <= group.policy.unrolled_row:
        stored = members // IN_REGISTERS
    else:
        numbers = {m.number for m in group.members}
        apart = {load.buffer for m in group.members for load in m.loads if not group.aligned(m, load)}
        kept = [b for b in group.makers if b in apart or not group.readers.get(b, _SOMEBODY) <= numbers]
        stored = len(kept) if cost(*(m.step.value for m in group.members)) <= MOST_OPERATIONS else members
        stored = max(stored, members // IN_REGISTERS)
    return len(group.reads) + stored <= limit


def _is_lopsided(group: Group) -> bool:
    """Would few threads have all the work: each of few rows, one after the other, that are worth being shared?"""
    longest = group.policy.long_row
    if longest is None or not _few(group.spine[: group.depth], group.policy):
        return False
    if not group.has_phases and all(m.step.loops == group.spine for m in group.members):
        return False  # no rows at all
    if all(m.pointwise for m in group.members):
        longest //= UNREDUCED
    rows = [iterations(m.step.loops[group.depth :]) for m in group.members if m.pointwise]
    return any(n is not None and n >= longest for n in rows)


def _goes_together(group: Group) -> bool:
    """May the group's reductions be done in one kernel, as its policy wants them?"""
    over_rows = [m.step for m in group.members if m.deferred]
    limit = group.policy.swept_row
    if limit is None or not over_rows:
        return True
    if len({frozenset(step.vars) for step in over_rows}) > 1:
        return False
    if not group.has_phases and all(m.step.loops == group.spine for m in group.members):
        return True
    for step in over_rows:
        row = step.loops[group.depth :]
        length = iterations(row)
        if not step.vars or not set(step.vars) <= set(row) or length is None or length > limit:
            return False
        if group.depth and len(step.vars) < len(row):  # several elements of a row to one place, and others elsewhere
            return False
    return True


def _refined(member: Member, table: Mapping[Var, Index], spine: Sequence[Var]) -> Member:
    loops: list[Var] = []
    for var in member.step.loops:
        if var in table:
            loops += [v for v in spine if v in table[var].atoms]
        else:
            loops.append(var)
    return replace(member, step=substituted(member.step, {v: table[v] for v in member.step.loops if v in table}, loops))


def _new_depth(group: Group, table: Mapping[Var, Index]) -> int:
    loops = [table[v].atoms if v in table else {v} for v in group.spine[: group.depth]]
    return sum(isinstance(atom, Var) for atoms in loops for atom in atoms)


def _reachable(group: Group, member: Member, load: Load, outer: Sequence[Var]) -> bool:
    """Is what is read made before, in the same row?"""
    maker = group.makers.get(load.buffer)
    if maker is None:
        return True
    if maker.deferred or maker.step.kind == SCATTER:  # whoever reads what it makes waits for all of it
        return False
    return is_aligned(maker, member, load) or in_row(maker.step.place, load.index, outer) or _is_of(maker, load, outer)


def _is_of(maker: Member, load: Load, outer: Sequence[Var]) -> bool:
    """Is the place, wherever it lies among those of other rows, filled by the same row?"""
    if not maker.pointwise or load.indirect:
        return False
    found = coordinates(maker.step, load.index)
    return found is not None and all(found.get(var) is index(var) for var in outer)


def in_row(made: Index, read: Index, outer: Sequence[Var]) -> bool:
    """Does every place ``read`` belong to what the same row made at the places ``made``?"""
    strides = []
    for var in [v for v in outer if v is not ROW]:
        one, other = made.stride(var), read.stride(var)
        if one is None or one is not other:
            return False
        strides.append(one)
    rest = {var: index(0) for var in outer}
    mine, theirs = made.substitute(rest), read.substitute(rest)
    if mine is theirs:
        return True
    low, high = mine.bounds()
    least, most = theirs.bounds()
    if low is None or high is None or least is None or most is None or least < low or most > high:
        return False
    return _apart(strides, high - low + 1)


def _apart(strides: Sequence[Index], span: int) -> bool:
    """Are the rows' places disjoint intervals?"""
    steps = sorted(abs(s.value) for s in strides if s.value is not None)
    if len(steps) < len(strides):
        return False
    return not steps or (steps[0] >= span and all(s % steps[0] == 0 for s in steps))
