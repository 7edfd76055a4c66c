"""Neighbouring loops that every access sees as one become one loop."""

from __future__ import annotations

from dataclasses import replace

from jitney_lowering.index import Index, Names, Var, equal, index
from jitney_lowering.scheduler.group import Group, Member
from jitney_lowering.scheduler.simplify import substituted


def collapse(group: Group, names: Names, depth: int) -> Group:
    """The group with as few spine loops as possible.

    Args:
        group: not changed.
        names: for new variables.
        depth: loops before this one and those after it are not merged with each other.
    """
    at = 0
    while at + 1 < len(group.spine):
        outer, inner = group.spine[at : at + 2]
        if at + 1 != depth and all(_mergeable(m, outer, inner) for m in group.members):
            merged = names.var(outer.size * inner.size, "v")
            group = _merge(group, at, merged)
            if at + 1 < depth:
                depth -= 1
        else:
            at += 1
    return replace(group, depth=depth)


def _mergeable(member: Member, outer: Var, inner: Var) -> bool:
    loops = member.step.loops
    if outer not in loops and inner not in loops:
        return True
    if outer not in loops or inner not in loops or loops.index(outer) + 1 != loops.index(inner):
        return False
    if (outer in member.step.reduced) != (inner in member.step.reduced):
        return False
    # The number of an iteration among the reduced ones is row-major, so an arg reduction does not mind.
    return all(_linear(place, outer, inner) for place in member.step.places())


def _linear(place: Index, outer: Var, inner: Var) -> bool:
    one, other = place.stride(outer), place.stride(inner)
    return one is not None and other is not None and equal(one, other * inner.size)


def _merge(group: Group, at: int, merged: Var) -> Group:
    outer, inner = group.spine[at : at + 2]
    table: dict[Var, Index] = {outer: index(0), inner: merged}
    members = []
    for member in group.members:
        loops = member.step.loops
        if outer in loops:
            place = loops.index(outer)
            step = substituted(member.step, table, (*loops[:place], merged, *loops[place + 2 :]))
            member = replace(member, step=step)
        members.append(member)
    spine = (*group.spine[:at], merged, *group.spine[at + 2 :])
    return replace(group, spine=spine, members=tuple(members))
