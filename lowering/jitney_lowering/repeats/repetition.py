"""Where a graph repeats itself, and the shorter graph that is lowered in its place."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx


@dataclass(frozen=True)
class Repetition:
    """What was left out of a graph whose nodes repeat themselves.

    ``nodes`` are those of the whole graph in order, without placeholders and output. From ``begin`` on they repeat
    themselves with a ``period``: each does to its period what the one before does to its own. ``left_out`` periods from
    ``cut`` on are not in the short graph; what followed follows on the nodes before the cut there.

    Args:
        nodes, begin, cut, period, left_out: see above.
        stop: the first node that is no longer part of a period.
        short: the nodes of the short graph, as ``nodes``.
        placeholders: of the whole graph.
        following: placeholder -> the one that is used in its place one period later.
        positions: by placeholder of the short graph: the number of the whole graph's.
        results: of the whole graph: the output's arguments.
        shown: where each of these nodes is among the results of the short graph.
        boundaries: what was known when the graph was lowered, before and after the last period before the cut.
    """

    nodes: Sequence[fx.Node]
    begin: int
    cut: int
    period: int
    left_out: int
    stop: int
    short: Sequence[fx.Node]
    placeholders: Sequence[fx.Node]
    following: Mapping[fx.Node, fx.Node]
    positions: Sequence[int]
    results: Sequence[object]
    shown: Mapping[fx.Node, int]
    boundaries: list[Any] = field(default_factory=list)

    @functools.cached_property
    def chains(self) -> dict[fx.Node, tuple[list[fx.Node], int]]:
        """By placeholder that has others in its place in other periods: all of these in order, and which it is."""
        found: dict[fx.Node, tuple[list[fx.Node], int]] = {}
        followers = {*self.following.values()}
        for first in (node for node in self.following if node not in followers):
            chain = [first]
            while chain[-1] in self.following:
                chain.append(self.following[chain[-1]])
            found.update({node: (chain, at) for at, node in enumerate(chain)})
        return found

    def original(self, position: int, later: int) -> fx.Node:
        """The node of the whole graph that one of the short graph stands for, so many periods later."""
        if position < self.begin:
            return self.nodes[position]
        after = position + self.left_out * self.period
        return self.nodes[after if after >= self.stop else position + later * self.period]
