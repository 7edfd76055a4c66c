"""Another order of a step's loops: the rows of a group outermost, so that the step may join it.

A softmax over channels that lie far apart reduces within rows which are a column of memory; what reads its results goes
through memory in order. Where neighbouring rows are gone through together, either order is as good.
"""

from __future__ import annotations

from jitney_lowering.index import Index, Var
from jitney_lowering.ir.loops import SCANS, Computed
from jitney_lowering.ir.values import Load, walk
from jitney_lowering.scheduler.group import Group, iterations
from jitney_lowering.scheduler.simplify import substituted


def along_rows(group: Group, step: Computed) -> Computed | None:
    """The step with the loops that go along the group's rows first; None if it reads nothing of a row, or cannot.

    Rows longer than the policy's ``turned_row`` stay as they are, and so do steps whose order of loops has a meaning. A
    group whose rows are single elements gets longer ones only if they are written out: colours of a pixel, say, that
    lie one plane after the other.
    """
    if _has_order(step) or not group.depth:
        return None
    shortest, longest = 1, group.policy.turned_row
    if group.depth == len(group.spine):
        shortest, longest = 2, group.policy.unrolled_row
    outer = group.spine[: group.depth]
    found = _rows(group, step, outer)
    if found is None or any(var in step.reduced for var in found):
        return None
    order = (*found, *(var for var in step.loops if var not in found))
    length = iterations(order[len(found) :])
    scanned = any(member.step.kind in SCANS for member in group.members)  # their rows lie side by side as it is
    if order == step.loops or (not scanned and (length is None or not shortest <= length <= longest)):
        return None
    return substituted(step, {}, order)


def like_rows(group: Group, step: Computed) -> Computed:
    """The step with loops of the same sizes in the order of the group's, or as it is."""
    sizes = [var.size for var in group.spine]
    if len(sizes) != len(step.loops) or len(set(sizes)) != len(sizes) or _has_order(step):
        return step
    of_size = {var.size: var for var in step.loops}
    if set(of_size) != set(sizes) or any(of_size[size] in step.reduced for size in sizes[: group.depth]):
        return step
    return substituted(step, {}, [of_size[size] for size in sizes])


def _has_order(step: Computed) -> bool:
    """Does it mean something in which order its loops go round?"""
    return step.kind in SCANS or step.kind.startswith("arg")


def _rows(group: Group, step: Computed, outer: tuple[Var, ...]) -> list[Var] | None:
    """For each of the outer loops the step's own loop that goes along it, as what it reads of the group tells."""
    for read in walk(step.value):
        maker = group.makers.get(read.buffer) if isinstance(read, Load) and not read.indirect else None
        if maker is None or maker.deferred:
            continue
        assert isinstance(read, Load)
        found = [_along(maker.step.place.stride(var), var, read.index, step) for var in outer]
        if None not in found and len(set(found)) == len(found):
            return [var for var in found if var is not None]
    return None


def _along(stride: Index | None, row: Var, place: Index, step: Computed) -> Var | None:
    if stride is None or stride.value == 0:
        return None
    return next((v for v in step.vars if v.size is row.size and place.stride(v) is stride), None)
