"""Short rows: a block of rows takes the place of one, so that vectors go along the rows and not within one.

A kernel whose rows have three elements, of a vector in space or of a pixel, would fill three lanes of a vector, and
compute what there is once a row without vectors. In a block the loop over its rows is the innermost of each nest.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from jitney_lowering.index import Index, Names, Var, index
from jitney_lowering.ir.loops import SCANS
from jitney_lowering.ir.values import Load, cost, walk
from jitney_lowering.scheduler.group import Group, Member, iterations
from jitney_lowering.scheduler.simplify import substituted

LEAST, MOST = 16, 256  # rows of a block
# Cycles, as measured with AVX2: what an operation costs in a vector, that of a row's own elements and that of a block;
# a nest for each row; an element that is read or written at a stride.
IN_ROW, IN_BLOCK, NEST, STRIDED = 0.7, 0.5, 3.0, 0.85
VECTOR = 32  # bytes
WORTH = 1.3  # times


def blocked(group: Group, names: Names, needed: Collection[str]) -> Group:
    """The group with blocks of rows instead of rows, where these are as short as its policy says and that is faster.

    Args:
        group: not changed.
        names: for new variables.
        needed: buffers that somebody outside of the group reads.
    """
    if not group.depth or not all(_is_short(member, group) for member in group.members):
        return group
    by_rows, in_blocks = (sum(costs) for costs in zip(*(_costs(m, group, needed) for m in group.members), strict=True))
    if by_rows < WORTH * in_blocks:
        return group
    row = group.spine[group.depth - 1]
    count = divisor(row.size.value, LEAST, MOST)
    if count is None:
        return group
    block, inner = names.var(index((row.size.value or 0) // count), "v"), names.var(index(count), "v")
    outer = (*group.spine[: group.depth - 1], block)
    table: dict[Var, Index] = {row: index(block) * count + inner}
    members = []
    for member in group.members:
        loops = (*outer, *member.step.loops[group.depth :], inner)
        members.append(replace(member, step=substituted(member.step, table, loops)))
    spine = (*outer, *group.spine[group.depth :], inner)
    return replace(group, spine=spine, members=tuple(members))


def _is_short(member: Member, group: Group) -> bool:
    """Is it done within rows, of few elements? The position of an extreme and a scan have a row to themselves."""
    step = member.step
    if member.deferred or step.kind.startswith("arg") or step.kind in SCANS or len(step.loops) < group.depth:
        return False
    length = iterations(step.loops[group.depth :])
    return length is not None and length <= group.policy.short_row


def _costs(member: Member, group: Group, needed: Collection[str]) -> tuple[float, float]:
    """Cycles that a row takes by itself, and in a block."""
    step, row = member.step, group.spine[group.depth - 1]
    length = iterations(step.loops[group.depth :]) or 1
    values = list(walk(step.value))
    work = cost(step.value)
    places = [v.index for v in values if isinstance(v, Load) and not group.aligned(member, v)]
    places += [v.index for v in values if isinstance(v, Load) and v.buffer not in group.makers]
    places += [step.place] * (
        step.buffer in needed or any(_is_read_apart(step.buffer, m, group) for m in group.members)
    )
    work += len(places)
    lanes = VECTOR // max((v.dtype.itemsize for v in values), default=1)
    in_block = IN_BLOCK * work * length / lanes
    in_block += STRIDED * length * sum(place.stride(row) not in (index(0), index(1)) for place in places)
    if length == 1:
        return float(work), in_block
    ragged = 1.0 if length % lanes == 0 else 1.5 if length < lanes else 3.0
    return NEST * (1 + (not member.pointwise)) + IN_ROW * work * math.ceil(length / lanes) * ragged, in_block


def _is_read_apart(buffer: str, member: Member, group: Group) -> bool:
    """Does a member read what another one has made in an iteration of its own?"""
    return any(load.buffer == buffer and not group.aligned(member, load) for load in member.loads)


def divisor(size: int | None, least: int, most: int) -> int | None:
    """The largest divisor between two bounds that leaves several blocks; None if there is none."""
    if size is None:
        return None
    return next((n for n in range(min(most, size // 2), least - 1, -1) if size % n == 0), None)
