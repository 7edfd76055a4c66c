"""From the kernels of a short graph to those of the whole one: those of one block, again for each that was left out.

Items are kernels and operators in order. Where the graph repeats itself, so do they, if everything went as it should:
each then does to other buffers what the item one period before does. What corresponds are chains of buffers (``x0`` in
one period, ``x1`` in the next), which become longer: the items before the cut keep their buffers, those after it use
what is so many places further on in each chain, and new items come in between.
"""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from jitney.errors import BackendFailed
from jitney_lowering.ir.loops import Program, Strided
from jitney_lowering.repeats.boundary import alike
from jitney_lowering.repeats.chains import Chains, EndOfChain
from jitney_lowering.repeats.renaming import Named, named, renamed
from jitney_lowering.repeats.repetition import Repetition
from jitney_lowering.repeats.unrolled import Copy, Item, Unrolled
from jitney_lowering.rules.views import VIEWS

_log = logging.getLogger("jitney.fusion")

BEFORE = 2  # periods that do the same, the second of which is repeated
EARLY = 2  # periods: what the items are about that are only in the first ones


def unrolled(program: Program, items: Sequence[Item]) -> Unrolled | None:
    """The items of the whole graph; None if those of the short one do not repeat themselves as it does.

    ``Unrolled.verify`` is called in any case: it sees what is read from memory, not what kernels compute by themselves.
    """
    repetition = program.repetition
    assert repetition is not None
    found = None
    reason = "what is known changes from one to the next"
    try:
        if not program.lazy and alike(repetition.boundaries, repetition):
            reason = "their kernels differ"
            found = _Unrolling(program, [named(item) for item in items], repetition).made()
        if found is not None:
            found.verify()
    except EndOfChain:
        found = None
    except BackendFailed as failed:
        found, reason = None, str(failed)
    if found is None:
        _log.info("%s equal layers are compiled one by one: %s", repetition.left_out, reason)
    return found


@dataclass(frozen=True)
class _Run:
    """Each item from ``begin`` to ``stop`` does what the one ``period`` items later does to the next period."""

    begin: int
    stop: int
    period: int

    @property
    def cut(self) -> int:
        """Before this item come those of periods that were left out."""
        return self.begin + BEFORE * self.period


class _Unrolling:
    def __init__(self, program: Program, items: Sequence[Named], repetition: Repetition) -> None:
        self.program = program
        self.items = items
        self.repetition = repetition
        self.places = {node: at for at, node in enumerate(repetition.short)}
        self.stop = repetition.stop - repetition.left_out * repetition.period  # as in the short graph
        self.inputs = self._inputs()

    def _inputs(self) -> dict[fx.Node, str]:
        """The buffers of the whole graph's placeholders that the short graph has."""
        given = zip(self.repetition.positions, self.program.inputs, strict=True)
        placeholders = self.repetition.placeholders
        return {placeholders[number]: name for number, name in given if isinstance(name, str)}

    def made(self) -> Unrolled | None:
        """The whole graph's items."""
        runs = self._runs()
        times = self._times(runs)
        if times is None:
            return None
        chains = self._chains(runs, times)
        if chains is None or not self._continues(chains) or not self._complete(runs, times):
            return None
        cuts = {run.cut: run for run in runs}
        copies: list[Copy] = []
        like: dict[int, int] = {}
        for run in runs:
            like |= {
                n: n + (run.period if n < run.stop else -run.period) for n in range(run.begin, run.stop + run.period)
            }
        for number in range(len(self.items)):
            if number in cuts:
                block = range(number - cuts[number].period, number)
                for later in range(1, self.repetition.left_out + 1):
                    copies += [self._at(one, chains, later, like, f"_{later}") for one in block]
            copies.append(self._at(number, chains, times[number], like))
        results = self._results(chains)
        if results is None:
            return None
        origins, outputs = results
        program = self._program(chains, outputs)
        return Unrolled(program, copies, origins, self.program, self.items, self.repetition)

    # ------------------------------------------------------------------ what repeats itself

    def _runs(self) -> list[_Run]:
        """Stretches of items each of which is followed by its like at the same distance."""
        known: dict[Any, list[int]] = {}
        for number, item in enumerate(self.items):
            known.setdefault((item.key, item.nodes), []).append(number)
        runs: list[_Run] = []
        start, distance = 0, 0
        for number in range(len(self.items) + 1):
            own = self._distance(number, known) if number < len(self.items) else 0
            if own != distance:
                if distance and number - start >= BEFORE * distance:
                    runs.append(_Run(start, number, distance))
                start, distance = number, own
        return runs

    def _distance(self, number: int, known: Mapping[Any, Sequence[int]]) -> int:
        """How many items later the same is done to the next period; 0 if it is not."""
        item, period, short = self.items[number], self.repetition.period, self.repetition.short
        places = [self.places.get(node, -1) + period for node in item.nodes]
        if not places or min(places) < self.repetition.begin + period or max(places) >= self.stop:
            return 0
        like = known.get((item.key, tuple(short[at] for at in places)), ())
        alike = known[item.key, item.nodes]
        return like[alike.index(number)] - number if len(like) == len(alike) else 0

    def _times(self, runs: Sequence[_Run]) -> list[int] | None:
        """For each item how many periods later it is in the whole graph; None if that is not clear."""
        repetition = self.repetition
        times: list[int | None] = [None] * len(self.items)
        for run in runs:
            for number in range(run.begin, run.stop + run.period):
                if times[number] is not None:
                    return None  # it is part of two runs
                times[number] = 0 if number < run.cut else repetition.left_out
        for number, item in enumerate(self.items):
            if times[number] is None:
                places = [self.places.get(node, -1) for node in item.nodes]
                early = max(places, default=-1) < repetition.begin + EARLY * repetition.period
                if min(places, default=-1) < (0 if early else repetition.cut - repetition.period):
                    return None
                times[number] = 0 if early else repetition.left_out
        return times  # type: ignore[return-value]

    def _continues(self, chains: Chains) -> bool:
        """Is what was known after a period what was known after the one before, one period later?"""
        before, after = self.repetition.boundaries
        pairs = set(zip(before.names, after.names, strict=True))
        if not len(pairs) == len(set(before.names)) == len(set(after.names)):
            return False
        visible = {name for item in self.items for name in item.names} | {*self.inputs.values()}
        return all(chains.corresponds(x, y) if {x, y} & visible else True for x, y in pairs)

    def _complete(self, runs: Sequence[_Run], times: Sequence[int]) -> bool:
        """Is each node of the whole graph as often in items as the one in its place in the short graph?"""
        repetition = self.repetition
        found: Counter[fx.Node] = Counter()
        wanted: Counter[fx.Node] = Counter()
        for number, item in enumerate(self.items):
            found.update(self._original(node, times[number]) for node in item.nodes)
            for node in item.nodes:
                at = self.places[node]
                wanted[repetition.original(at, 0 if at < repetition.cut else repetition.left_out)] += 1
                if repetition.cut - repetition.period <= at < repetition.cut:
                    wanted.update(repetition.original(at, 1 + later) for later in range(repetition.left_out))
        for run in runs:
            for item in self.items[run.cut - run.period : run.cut]:
                for later in range(1, repetition.left_out + 1):
                    found.update(self._original(node, later) for node in item.nodes)
        return found == wanted and not self._inside(times)

    def _inside(self, times: Sequence[int]) -> bool:
        """May an item that is moved compute by itself what an earlier period has left out?

        What no item is of is computed where it is read: of all periods that there are, but not of those left out.
        """
        repetition = self.repetition
        own = {node for item in self.items for node in item.nodes}
        last = repetition.cut - 2 * repetition.period
        for item, later in zip(self.items, times, strict=True):
            seen: set[fx.Node] = set()
            waiting = list(item.nodes) if later else []
            while waiting:
                sources = [
                    n for n in waiting.pop().all_input_nodes if n in self.places and n not in own and n not in seen
                ]
                if any(repetition.begin <= self.places[n] < last and not _only_shows(n) for n in sources):
                    return True
                seen.update(sources)
                waiting += sources
        return False

    def _chains(self, runs: Sequence[_Run], times: Sequence[int]) -> Chains | None:
        following: dict[str, str] = {}
        waiting = [
            pair
            for run in runs
            for i in range(run.begin, run.stop)
            for pair in zip(self.items[i].names, self.items[i + run.period].names, strict=True)
        ]
        buffers = self.program.buffers
        while waiting:
            x, y = waiting.pop()
            if following.setdefault(x, y) != y:
                return None
            a, b = buffers[x], buffers[y]
            if replace(a, name="", home=None) != replace(b, name="", home=None) or (a.home is None) != (b.home is None):
                return None
            if a.home is not None and b.home is not None:
                if a.home[1] is not b.home[1]:
                    return None
                if following.get(a.home[0]) != b.home[0]:
                    waiting.append((a.home[0], b.home[0]))
        wanted = {self.inputs[x]: self.inputs.get(y) for x, y in self.repetition.following.items() if x in self.inputs}
        known = {*self.inputs.values()}
        moved = {y for y in wanted.values() if y is not None}
        for x, y in following.items():
            if wanted.get(x) != y and (x in wanted or y in moved or (y in known and y != x)):
                return None
        first: dict[str, int] = {}  # buffer -> when it is mentioned first
        for i, item in enumerate(self.items):
            for name in item.names:
                for each in (name, *self._homes(name)):
                    first.setdefault(each, times[i])
        moving = {x: y for x, y in following.items() if x != y and x not in wanted}
        if len({*moving.values()}) != len(moving) or any(y in following and following[y] == y for y in moving.values()):
            return None
        for check, _, _ in self.program.checks:
            if check in moving or check in moving.values():
                return None
        return Chains(moving, first, self.repetition, self.inputs)

    def _homes(self, name: str) -> list[str]:
        found = []
        while (home := self.program.buffers[name].home) is not None:
            name = home[0]
            found.append(name)
        return found

    # ------------------------------------------------------------------ the whole graph

    def _at(self, number: int, chains: Chains, later: int, like: Mapping[int, int], suffix: str = "") -> Copy:
        """An item, so many periods later."""
        item = self.items[number]
        names = {name: new for name in item.names if (new := chains.later(name, later)) != name}
        nodes = tuple(self._original(node, later) for node in item.nodes)
        return Copy(renamed(item, names, nodes, suffix), number, later, names, like.get(number))

    def _original(self, node: fx.Node, later: int) -> fx.Node:
        at = self.places.get(node)
        return self.repetition.original(at, later) if at is not None else node

    def _results(self, chains: Chains) -> tuple[list[tuple[fx.Node, int] | None], list[Any]] | None:
        """Per output of the whole graph what stands for it in the short one (``Unrolled.origins``), and what it is."""
        repetition, short = self.repetition, self.program.outputs
        whole = {node: at for at, node in enumerate(repetition.nodes)}
        origins: list[tuple[fx.Node, int] | None] = []
        outputs: list[Any] = []
        for result in repetition.results:
            if isinstance(result, torch.SymInt):
                return None
            if not isinstance(result, fx.Node):
                origins.append(None)
                outputs.append(result)
                continue
            likeness = self._likeness(result, whole.get(result))
            if likeness is None:
                return None
            origins.append(likeness)
            node, later = likeness
            found = short[repetition.shown[node]]
            if isinstance(found, Strided):
                found = replace(found, buffer=chains.later(found.buffer, later))
            elif later and node is not result:
                return None  # a number that each block computes
            outputs.append(found)
        return origins, outputs

    def _likeness(self, result: fx.Node, at: int | None) -> tuple[fx.Node, int] | None:
        """A node among the short graph's results that does the same, and how many periods later this one does it."""
        repetition = self.repetition
        shown, period, left_out = repetition.shown, repetition.period, repetition.left_out
        if at is None:  # a placeholder
            chain, number = repetition.chains.get(result, ([result], 0))
            known = (n for n in range(number, -1, -1) if chain[n] in shown and chain[n] in self.inputs)
            place = next(known, None)
            return None if place is None else (chain[place], number - place)
        resumed = repetition.cut + left_out * period
        if at >= resumed:
            return (result, left_out) if result in shown else None
        later = 0 if at < repetition.cut else (at - repetition.cut) // period + 1
        node = repetition.nodes[at - later * period]
        return (node, later) if node in shown else None

    def _program(self, chains: Chains, outputs: list[Any]) -> Program:
        program, repetition = self.program, self.repetition
        buffers, constants = dict(program.buffers), dict(program.constants)
        for name, later in chains.first.items():
            own = buffers[name]
            if later and own.home is not None:
                buffers[name] = replace(own, home=(chains.later(own.home[0], later), own.home[1]))
        for name, template, later in chains.new():
            if name in program.buffers:  # by chance
                raise EndOfChain
            like = program.buffers[template]
            home = like.home and (chains.later(like.home[0], later), like.home[1])
            buffers[name] = replace(like, name=name, home=home)
            if template in constants:
                constants[name] = constants[template]
        inputs: list[Any] = [None] * len(repetition.placeholders)
        for number, value in zip(repetition.positions, program.inputs, strict=True):
            inputs[number] = value
        for number, placeholder in enumerate(repetition.placeholders):
            inputs[number] = chains.inputs.get(placeholder, inputs[number])
        at = repetition.positions
        sizes = {size: reading._replace(input=at[reading.input]) for size, reading in program.sizes.items()}
        floats = frozenset(at[number] for number in program.floats)
        return replace(
            program, buffers=buffers, constants=constants, inputs=inputs, outputs=outputs, sizes=sizes, floats=floats,
            repetition=None,
        )  # fmt: skip


def _only_shows(node: fx.Node) -> bool:
    """Is it another view of what an item computes, or one of several results?"""
    return node.target in VIEWS or node.target is operator.getitem
