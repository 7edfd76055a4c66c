"""Buffers that correspond to each other, one for each period."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import fx

from jitney_lowering.repeats.repetition import Repetition


class EndOfChain(Exception):
    """There is nothing in a buffer's place so many periods later: what was taken for a repetition is none."""


class Chains:
    """What buffers are called so many periods later, in a graph in which periods were left out.

    Args:
        following: buffer -> the one that is used in its place one period later, but for inputs; chains of these.
        first: how much later the first item that mentions a buffer is in the whole graph: not at all, or by all periods
            that were left out.
        repetition: of the graph.
        inputs: the buffers of its placeholders in the short graph.
    """

    def __init__(
        self,
        following: Mapping[str, str],
        first: Mapping[str, int],
        repetition: Repetition,
        inputs: Mapping[fx.Node, str],
    ) -> None:
        self.first = first
        self.left_out = repetition.left_out
        self.chains: dict[str, list[str]] = {}  # the chain of each of its buffers, in the whole graph
        self.numbers: dict[str, int] = {}  # and where it is there, counted as in the short graph
        self.templates: dict[str, tuple[str, int]] = {}  # new buffer -> one that is like it, and how much later it is
        self.inputs: dict[fx.Node, str] = dict(inputs)  # of the whole graph
        followers = {*following.values()}
        for start in (name for name in following if name not in followers):
            chain = [start]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            self._add(chain, self._of_made(chain))
        for given, number in repetition.chains.values():
            if number:
                continue
            self._add([inputs[n] for n in given if n in inputs], self._of_inputs(given))

    def _add(self, chain: list[str], whole: list[str]) -> None:
        for number, name in enumerate(chain):
            self.chains[name], self.numbers[name] = whole, number

    def _of_made(self, chain: list[str]) -> list[str]:
        """Those that items before the cut make stay where they are; after them come new ones, then the rest."""
        before = [name for name in chain if not self.first[name]]
        last = before[-1] if before else chain[0]
        new = [f"{last}_{later}" for later in range(1, self.left_out + 1)]
        self.templates.update({name: (last, later) for later, name in enumerate(new, 1)})
        return [*before, *new, *chain[len(before) :]]

    def _of_inputs(self, chain: list[fx.Node]) -> list[str]:
        """The short graph has the first ones; those after them in the whole graph are new."""
        known = [self.inputs[node] for node in chain if node in self.inputs]
        for later, node in enumerate(chain[len(known) :], 1):
            if known:
                self.inputs[node] = f"{known[-1]}_{later}"
                self.templates[self.inputs[node]] = known[-1], later
        return [self.inputs[node] for node in chain if node in self.inputs]

    def later(self, name: str, periods: int) -> str:
        """The buffer in the place of this one of the short graph, so many periods later."""
        chain = self.chains.get(name)
        if chain is None:
            return name
        number = self.numbers[name] + periods
        if number >= len(chain):
            raise EndOfChain
        return chain[number]

    def corresponds(self, name: str, other: str) -> bool:
        """Is the other buffer in the place of this one one period later, both of the short graph?"""
        if name not in self.chains or other not in self.chains:
            return name == other
        return self.chains[name] is self.chains[other] and self.numbers[other] == self.numbers[name] + 1

    def new(self) -> Iterator[tuple[str, str, int]]:
        """What the short graph has not: its name, one that is like it, and how many periods later it is than that."""
        for name, (template, later) in self.templates.items():
            yield name, template, later
