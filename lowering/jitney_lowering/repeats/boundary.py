"""What the lowering knows between two periods of a graph: if that stays the same, all later ones are lowered alike.

A value may be put off, and be computed inside of the loops of whoever reads it. What goes on growing from block to
block (a running sum, a counter) shows here: after two blocks it is another expression than after one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from jitney_lowering.aten.builder import Builder
from jitney_lowering.aten.tensor import Tensor, corner
from jitney_lowering.ir.values import Load, Put, rebuild, walk
from jitney_lowering.repeats.repetition import Repetition


@dataclass(frozen=True)
class Boundary:
    """What later nodes may read, without the names of buffers, and these names.

    Args:
        places: where the nodes are whose values are read later.
        state: what these are, and how much is put off until the end of the graph.
        names: the buffers that are mentioned, in order.
    """

    places: tuple[int, ...]
    state: Any
    names: tuple[str, ...]


class Watch:
    """Takes down what is known before the last two periods that come before the cut begin and end."""

    def __init__(self, repetition: Repetition) -> None:
        self.repetition = repetition
        self.nodes = repetition.short
        places = {node: at for at, node in enumerate(self.nodes)}
        self.last_use = [max((places.get(user, -1) for user in node.users), default=-1) for node in self.nodes]
        period, cut = repetition.period, repetition.cut
        self.at = {self.nodes[at]: at for at in (cut - period, cut)}
        self.seen = repetition.boundaries

    def look(self, node: fx.Node, values: Mapping[fx.Node, Any], builder: Builder) -> None:
        """Before this node is lowered."""
        end = self.at.get(node)
        if end is None:
            return
        period = range(end - self.repetition.period, end)  # of others the results are not looked at again
        places = tuple(at for at in range(end) if self.last_use[at] >= end or (at in period and self._is_result(at)))
        places = tuple(at for at in places if self.nodes[at] in values)
        names: list[str] = []
        known: dict[int, int] = {}
        state = [_described(values[self.nodes[at]], names, known) for at in places]
        self.seen.append(Boundary(places, (state, builder.put_off()), tuple(names)))

    def _is_result(self, at: int) -> bool:
        return any(user.op == "output" for user in self.nodes[at].users)


def _described(value: Any, names: list[str], known: dict[int, int]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_described(v, names, known) for v in value]
    if not isinstance(value, Tensor):
        return type(value), value
    again = id(value) in known
    number = known.setdefault(id(value), len(known))
    if again:
        return number
    plain = type(value), value.size, value.dtype, value.device, value.wanted, value.whole, value.paired
    strided = value.strided
    if strided is not None:
        names.append(strided.buffer)
        return number, plain, strided.size, strided.stride, strided.offset
    element = value.load(corner(value.size))
    renamed: dict[str, str] = {}
    for v in walk(element):
        if isinstance(v, (Load, Put)) and v.buffer not in renamed:
            renamed[v.buffer] = f"buffer {len(renamed)}"
            names.append(v.buffer)
    below = None if value.base is None else _described(value.base, names, known)
    return number, plain, rebuild(element, buffers=renamed), below


def alike(boundaries: Sequence[Boundary], repetition: Repetition) -> bool:
    """Is the same known after two periods, but for names of buffers and what belongs to either period?"""
    if len(boundaries) != 2:
        return False
    first, second = boundaries
    moved = tuple(at + repetition.period if at >= repetition.begin else at for at in first.places)
    return moved == second.places and first.state == second.state and len(first.names) == len(second.names)
