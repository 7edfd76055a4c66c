"""A graph without most of the equal blocks in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import fx

from jitney_lowering.repeats.repetition import Repetition
from jitney_lowering.repeats.runs import Run, longest_run

KEPT = 4  # periods before the cut: kernels reach over the ends of one, and three in a row must be seen to be equal
LAST = 1  # periods after it: the last one may be read by others than those before
REACH = 2  # periods: who reads a result is not farther away
FEWEST = 3  # periods that are left out


class Short:
    """What is lowered instead of a module: its attributes with another graph."""

    def __init__(self, module: fx.GraphModule, graph: fx.Graph) -> None:
        self._module = module
        self.graph = graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def shortened(module: fx.GraphModule) -> tuple[Any, Repetition] | None:
    """The graph without blocks that do the same as those before them; None without enough of such."""
    run = longest_run(module.graph)
    if run is None or run.periods < KEPT + LAST + FEWEST:
        return None
    return _Cut(module, run).made()


class _Cut:
    def __init__(self, module: fx.GraphModule, run: Run) -> None:
        self.module = module
        self.run = run
        self.nodes, self.period = run.nodes, run.period
        self.places = {node: at for at, node in enumerate(run.nodes)}
        self.cut = run.begin + KEPT * run.period
        self.left_out = run.periods - KEPT - LAST
        self.resumed = self.cut + self.left_out * run.period
        self.preceding = {y: x for x, y in run.following.items()}
        self.output = module.graph.output_node()
        self.new: dict[fx.Node, fx.Node] = {}
        results: Any = self.output.args[0]
        several = results if isinstance(results, (tuple, list)) else ()
        self.shown = Counter(result for result in several if isinstance(result, fx.Node))  # how often each is a result

    def made(self) -> tuple[Short, Repetition] | None:
        """The short graph."""
        output: Any = self.output.args[0]
        if not isinstance(output, (tuple, list)) or not self._repeats_readers():
            return None
        graph = fx.Graph()
        read = self._read()
        positions, placeholders = [], [n for n in self.module.graph.nodes if n.op == "placeholder"]
        for number, node in enumerate(placeholders):
            if node in read or not self._moves(node):
                self.new[node] = graph.node_copy(node)
                positions.append(number)
        short = []
        for at, node in enumerate(self.nodes):
            if at < self.cut or at >= self.resumed:
                copied = self._copied(graph, node, at)
                if copied is None:
                    return None
                short.append(copied)
        shown: dict[fx.Node, int] = {}
        results: list[Any] = []
        for result in output:
            if isinstance(result, fx.Node):
                if result not in self.new:
                    continue  # of a block that is left out
                shown.setdefault(result, len(results))
            results.append(self.new[result] if isinstance(result, fx.Node) else result)
        graph.output(tuple(results)).meta.update(self.output.meta)
        run = self.run
        parts = (self.nodes, run.begin, self.cut, self.period, self.left_out, run.stop, short, placeholders)
        return Short(self.module, graph), Repetition(*parts, run.following, positions, tuple(output), shown)

    def _moves(self, placeholder: fx.Node) -> bool:
        """Is there another one in its place in other periods?"""
        return placeholder in self.preceding or placeholder in self.run.following

    def _read(self) -> set[fx.Node | None]:
        """Placeholders that the short graph reads."""
        early = {n for node in self.nodes[: self.cut] for n in node.all_input_nodes}
        late = {n for node in self.nodes[self.resumed :] for n in node.all_input_nodes if n not in self.places}
        return early | {self._earlier(n) if self._moves(n) else n for n in late}

    def _earlier(self, placeholder: fx.Node) -> fx.Node | None:
        """What is in a placeholder's place so many periods before; itself if it is the same in each period."""
        for _ in range(self.left_out):
            before = self.preceding.get(placeholder)
            if before is None:
                return None
            placeholder = before
        return placeholder

    def _copied(self, graph: fx.Graph, node: fx.Node, at: int) -> fx.Node | None:
        """The node in the short graph; None if it reads what is not there."""
        wanted: dict[fx.Node, fx.Node] = {}
        for given in node.all_input_nodes:
            found: fx.Node | None = given
            place = self.places.get(given)
            if at >= self.resumed and place is None and self._moves(given):
                found = self._earlier(given)
            elif at >= self.resumed and place is not None and self.run.begin <= place < self.resumed:
                if place < self.resumed - REACH * self.period:
                    return None
                found = self.nodes[place - self.left_out * self.period]
            if found is None or found not in self.new:
                return None
            wanted[given] = self.new[found]
        made = graph.node_copy(node, wanted.__getitem__)
        self.new[node] = made
        return made

    def _repeats_readers(self) -> bool:
        """Are all that is left out, and what is in its place before, read by the same, one period apart?"""
        given = {n for node in self.nodes[self.cut : self.resumed] for n in node.all_input_nodes if n in self.preceding}
        pairs = [(self.preceding[y], y) for y in given]
        pairs += [(self.nodes[at - self.period], self.nodes[at]) for at in range(self.cut, self.resumed)]
        return all(self._readers(x, self.period) == self._readers(y, 0) for x, y in pairs)

    def _readers(self, node: fx.Node, later: int) -> Sequence[int]:
        """Where a value is read; -1 for each time it is a result."""
        found = [self.places[user] + later for user in node.users if user is not self.output]
        return sorted(found) + [-1] * self.shown[node]
