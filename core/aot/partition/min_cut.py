"""Where to cut a joint graph: what the forward keeps for the backward, and what the backward computes again.

A minimum cut (for the aim see Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016): every node that can
run in the forward is an edge whose capacity is the bytes that keeping its result keeps alive. Cutting it means keeping
it. What must not run twice hangs on the source, what the backward reads on the sink. Of cuts that cost the same the
one nearest to the backward is taken: it computes least again.

Bytes count per memory: a view costs what its base does. Parameters are alive anyway and cost next to nothing; other
inputs may be another graph's activations, so they cost little less than what the forward makes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import fx

from jitney.aot.partition.activations import read_results
from jitney.aot.partition.cost import (
    bytes_of,
    is_cheap,
    is_copy,
    is_factory,
    is_random,
    is_reduction,
    is_scattered_read,
    late_effects,
    memory_of,
    read_once,
    work_of,
)
from jitney.aot.partition.cse import merge_equal
from jitney.aot.partition.network import SINK, SOURCE, Vertex, minimum_cut
from jitney.aot.trace.joint import Joint
from jitney.aot.trace.results import ancestors, is_view, root_of
from jitney.aot.trace.sizes import is_symbolic

MEMORY = 64  # how much a byte kept alive weighs beside a byte of the tensor itself, which a backend may copy
INPUT = 56  # of an input: often the caller keeps it anyway


@dataclass
class Partition:
    """A cut.

    Args:
        saved: what the forward hands to the backward, tensors first, then symbolic numbers; also inputs.
        backward: the nodes that run in the backward, in order of the joint graph.
    """

    saved: list[fx.Node]
    backward: set[fx.Node] = field(default_factory=set)

    def bytes_saved(self, inputs: bool = True) -> int:
        """Bytes kept alive for the backward; without ``inputs``, only what the forward made."""
        return kept_alive(self.saved, inputs)

    def verify(self, joint: Joint) -> None:
        """Raise ``AssertionError`` unless the backward can be computed from what is saved and the tangents."""
        have = set(self.saved) | set(joint.tangents.values())
        for node in joint.graph.nodes:
            if node in self.backward and node not in have:
                missing = [a for a in node.all_input_nodes if a not in have and a not in self.backward]
                assert not missing, f"{node} needs {missing}, which nobody keeps"
                assert not is_random(node) or belongs_to_backward(joint)[node], f"{node} would draw twice"


def kept_alive(saved: Iterable[fx.Node], inputs: bool = True) -> int:
    """Bytes of the memory behind these nodes, each counted once; without ``inputs``, only what the forward made."""
    roots = {root_of(n) for n in saved}
    return sum(bytes_of(n) for n in roots if inputs or n.op != "placeholder")


def belongs_to_backward(joint: Joint) -> dict[fx.Node, bool]:
    """By node: does it need a gradient that comes from outside, or what an effect of the backward gives?"""
    begin = {*joint.tangents.values(), *late_effects(joint.graph)}
    found: dict[fx.Node, bool] = {}
    for node in joint.graph.nodes:
        found[node] = node in begin or any(found[a] for a in node.all_input_nodes)
    return found


def partition(joint: Joint, budget: float = 1.0) -> Partition:
    """Cut a joint graph.

    Args:
        joint: with tangents.
        budget: ``config.activation_memory_budget``: 1 keeps what makes the backward fast, 0 only the graph's inputs and
            what must not run twice; between them, what costs most time to compute again is kept first.
    """
    merge_equal(joint)
    read_results(joint)
    cut = _Cut(joint)
    saved = cut.minimum(cut.expensive)
    if budget < 1:
        saved = _within(cut, saved, budget)
    return _finished(joint, cut, saved)


def _finished(joint: Joint, cut: _Cut, saved: set[fx.Node]) -> Partition:
    tangents = set(joint.tangents.values())
    needed: set[fx.Node] = set()
    used: set[fx.Node] = set()
    todo = [n for n in (*joint.late, *late_effects(joint.graph)) if isinstance(n, fx.Node)]
    while todo:
        node = todo.pop()
        if node in needed or node in tangents:
            continue
        if node in saved:
            used.add(node)
            continue
        needed.add(node)
        todo.extend(node.all_input_nodes)
    _narrow(used - set(joint.gradients), used, needed)
    order = [n for n in joint.graph.nodes if n in used]
    numbers = [n for n in order if is_symbolic(n.meta["val"])]
    return Partition([n for n in order if n not in numbers] + numbers, needed)


def _narrow(candidates: set[fx.Node], saved: set[fx.Node], computed: set[fx.Node]) -> None:
    """Where the backward only looks at small views of a tensor, keep those: they hold no more memory, maybe less.

    Args:
        candidates: of what is kept, what may be replaced.
        saved: what is kept; changed.
        computed: what the backward computes; changed.
    """
    todo = [n for n in candidates if n.op != "placeholder" and isinstance(n.meta["val"], torch.Tensor)]
    while todo:
        node = todo.pop()
        readers = [u for u in node.users if u in computed]
        if not all(is_view(u) and isinstance(u.meta["val"], torch.Tensor) for u in readers):
            continue
        if readers and sum(map(bytes_of, readers)) < bytes_of(node):
            saved.remove(node)
            saved.update(readers)
            computed.difference_update(readers)
            todo += readers


class _Cut:
    """The flow network of one joint graph."""

    def __init__(self, joint: Joint) -> None:
        self.joint = joint
        self.late = belongs_to_backward(joint)
        wanted = ancestors([*joint.late, *late_effects(joint.graph)])
        self.nodes = [n for n in joint.graph.nodes if not self.late[n] and n in wanted]
        members = set(self.nodes)
        # What the backward reads, and what such nodes are made of.
        self.read = {n for n in self.nodes if any(self.late[u] and u in wanted for u in n.users)}
        self.read |= {n for n in joint.gradients if isinstance(n, fx.Node) and n in members}
        self.members = members
        # Only what the forward needs as well would run twice.
        required = ancestors(joint.outputs)
        self.expensive = {n for n in self.nodes if n in required and self._expensive(n)}
        # In a checkpointed region, eager reads such memory again, too.
        timed = {n for n in read_once(joint.graph) if "checkpoint" not in n.meta}
        self.fixed = {n for n in self.nodes if n.op == "placeholder" or self._once(n) or n in timed}
        overwritten = {joint.input_node(u.input) for u in joint.updates}
        self.weights = {n: self._weight(n, n in overwritten) for n in self.nodes}

    @staticmethod
    def _once(node: fx.Node) -> bool:
        """Must it run only once? Random operators, and getitems of such."""
        if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
            node = node.args[0]
        return is_random(node)

    def _expensive(self, node: fx.Node) -> bool:
        """Is it better kept than computed again, as far as time goes?"""
        if node.op != "call_function" or "checkpoint" in node.meta or is_view(node):
            return False
        if node.target is operator.getitem or is_symbolic(node.meta["val"]) or is_factory(node):
            return False
        if not is_cheap(node) or is_reduction(node) or is_scattered_read(node):
            return True
        return self._feeds_extern(node)

    def _feeds_extern(self, node: fx.Node) -> bool:
        """Does an operator of the backward that cannot be fused read it, so that it would be written to memory?"""
        todo, seen = [node], {node}
        while todo:
            for user in todo.pop().users:
                if self.late[user] and not is_cheap(user) and not is_view(user):
                    return True
                if is_view(user) and user not in seen:
                    seen.add(user)
                    todo.append(user)
        return False

    def _inside_region(self, node: fx.Node) -> bool:
        """Is it of a checkpointed region, and no result of it? Such are computed again, as the user asked."""
        region = node.meta.get("checkpoint")
        if region is None or self._once(node):
            return False
        return all(u.meta.get("checkpoint") == region for u in node.users if not self.late[u])

    def _weight(self, node: fx.Node, overwritten: bool) -> float:
        """The cost of keeping a node's result; of an input that is overwritten a copy is kept."""
        value = node.meta["val"]
        if is_symbolic(value):
            return 1
        if not isinstance(value, torch.Tensor) or self._inside_region(node):
            return math.inf
        if node.op == "get_attr" or (is_view(node) and root_of(node).op in ("placeholder", "get_attr")):
            return math.inf
        if node.op == "placeholder" and not overwritten:
            return 1 if node.meta.get("parameter") else INPUT * bytes_of(node) + 1
        written = 2 if is_copy(node) else 1  # what is copied is in memory already
        return MEMORY * memory_of(node) + written * bytes_of(node) + 1

    def minimum(self, kept: set[fx.Node]) -> set[fx.Node]:
        """The cheapest set of nodes to keep if those in ``kept`` may not be computed again."""
        saved: set[fx.Node] = set()
        edges: list[tuple[Vertex, Vertex, float]] = []
        # From what the backward reads, back to what may not run again: nothing before that matters.
        todo, seen = list(self.read), set(self.read)
        while todo:
            node = todo.pop()
            once, read, weight = node in self.fixed or node in kept, node in self.read, self.weights[node]
            if once and read and not math.isinf(weight):
                saved.add(node)  # in every cut
                continue
            edges.append(((node, 0), (node, 1), weight))
            if read:
                edges.append(((node, 1), SINK, math.inf))
            if once:
                edges.append((SOURCE, (node, 0), math.inf))
                continue
            for source in node.all_input_nodes:
                edges.append(((source, 1), (node, 0), math.inf))
                if source not in seen:
                    seen.add(source)
                    todo.append(source)
        return saved | minimum_cut(edges)


def _within(cut: _Cut, fast: set[fx.Node], budget: float) -> set[fx.Node]:
    """Let expensive operators run again, those that free most bytes for their work first, until the budget holds."""
    least = cut.minimum(set())
    lowest = kept_alive(least, inputs=False)
    limit = lowest + budget * (kept_alive(fast, inputs=False) - lowest)
    by_worth = sorted(cut.expensive, key=lambda n: work_of(n) / (bytes_of(n) + 1))
    low, high = 0, len(by_worth)  # how many of them may run again
    best = least
    while low < high:
        middle = (low + high) // 2
        found = cut.minimum(set(by_worth[middle:]))
        if kept_alive(found, inputs=False) <= limit:
            best, high = found, middle
        else:
            low = middle + 1
    return best
