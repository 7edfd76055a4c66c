"""Finds where a graph repeats itself: the layers of a model, forward or backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

LEAST = 8  # periods that are worth it
CANDIDATES = 4  # distances that are looked at


@dataclass(frozen=True)
class Run:
    """Nodes ``begin`` to ``stop``: each of them but those of the last period is followed by its like one period later.

    ``following``: placeholder -> the one that is used in its place one period later.
    """

    nodes: Sequence[fx.Node]
    period: int
    begin: int
    stop: int
    following: Mapping[fx.Node, fx.Node]

    @property
    def periods(self) -> int:
        """How many whole ones there are."""
        return (self.stop - self.begin) // self.period


def longest_run(graph: fx.Graph) -> Run | None:
    """The longest repetition; None without one that is worth it.

    Two nodes are alike if operator, other arguments and metadata of results are equal, and arguments that are nodes are
    the same node, or placeholders of equal metadata, or nodes that lie one period apart.
    """
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    described = [_described(node) for node in nodes]
    numbers: dict[Any, int] = {}
    keys = [numbers.setdefault(key, len(numbers)) for key, _ in described]
    best: tuple[int, int, int] | None = None
    for period in _distances(keys):
        begin, stop = _longest(len(keys) - period, lambda i, p=period: keys[i] == keys[i + p])
        if best is None or stop - begin > 1.1 * (best[2] - best[1]):
            best = period, begin, stop
    if best is None or best[2] - best[1] < (LEAST - 1) * best[0]:
        return None
    period, low, high = best
    arguments = [given for _, given in described]
    matcher = _Matcher(nodes, arguments, period)
    begin, stop = _longest(high - low, lambda i: matcher.match(low + i))
    if stop - begin < (LEAST - 1) * period:
        return None
    begin, stop = matcher.after_shared(low + begin, low + stop), low + stop
    following = matcher.following(begin, stop) if stop - begin >= (LEAST - 1) * period else None
    return None if following is None else Run(nodes, period, begin, stop + period, following)


def _distances(keys: Sequence[int]) -> list[int]:
    """How far apart equal nodes are, of those that appear least often among those that appear often."""
    counts = Counter(keys)
    often = [count for count in counts.values() if count >= LEAST]
    if not often:
        return []
    # Each of a block's operators appears once for each block, or several times; the former say how long a block is.
    gaps: Counter[int] = Counter()
    last: dict[int, int] = {}
    for at, key in enumerate(keys):
        if counts[key] >= LEAST - 1:
            if key in last:
                gaps[at - last[key]] += 1
            last[key] = at
    return sorted(sorted(gaps, key=lambda gap: -gap * gaps[gap])[:CANDIDATES])


def _longest(count: int, holds: Any) -> tuple[int, int]:
    """The longest stretch of numbers below ``count`` for which something holds."""
    best, start = (0, 0), 0
    for i in range(count):
        if not holds(i):
            start = i + 1
        elif i + 1 - start > best[1] - best[0]:
            best = start, i + 1
    return best


class _Matcher:
    def __init__(self, nodes: Sequence[fx.Node], arguments: Sequence[Sequence[fx.Node]], period: int) -> None:
        self.places = {node: at for at, node in enumerate(nodes)}
        self.arguments = arguments
        self.period = period

    def match(self, at: int) -> bool:
        """Does the node one period later do what this one does?"""
        pairs = zip(self.arguments[at], self.arguments[at + self.period], strict=True)
        return all(self._alike(x, y) for x, y in pairs)

    def _alike(self, x: fx.Node, y: fx.Node) -> bool:
        if x is y:
            return True
        if x.op == "placeholder" and y.op == "placeholder":
            return described_value(x.meta.get("val")) == described_value(y.meta.get("val"))
        first, second = self.places.get(x), self.places.get(y)
        return first is not None and second is not None and second - first == self.period

    def after_shared(self, begin: int, stop: int) -> int:
        """The first node after those that all periods read, which are not of any of them."""
        shared = {
            self.places.get(x, -1)
            for at in range(begin, stop)
            for x, y in zip(self.arguments[at], self.arguments[at + self.period], strict=True)
            if x is y
        }
        return max(begin, max(shared, default=-1) + 1)

    def following(self, begin: int, stop: int) -> dict[fx.Node, fx.Node] | None:
        """By placeholder the one that takes its place; None if it has several, or takes the place of several."""
        found: dict[fx.Node, fx.Node] = {}
        same: set[fx.Node] = set()
        for at in range(begin, stop):
            for x, y in zip(self.arguments[at], self.arguments[at + self.period], strict=True):
                if x is y:
                    same.add(x)
                elif x.op == "placeholder" and found.setdefault(x, y) is not y:
                    return None
        if len(set(found.values())) != len(found) or not same.isdisjoint({*found, *found.values()}):
            return None
        return found


def _described(node: fx.Node) -> tuple[Any, list[fx.Node]]:
    """What a node does, and the nodes that it does it to."""
    given: list[fx.Node] = []
    made = (node.op, node.target, _plain(node.args, given), _plain(node.kwargs, given))
    return (*made, described_value(node.meta.get("val"))), given


def _plain(value: Any, given: list[fx.Node]) -> Any:
    """Arguments as something that can be compared; nodes are put down elsewhere."""
    if isinstance(value, fx.Node):
        given.append(value)
        return fx.Node
    if isinstance(value, (tuple, list)):
        return type(value).__name__, *[_plain(v, given) for v in value]
    if isinstance(value, dict):
        return tuple((k, _plain(v, given)) for k, v in value.items())
    if isinstance(value, slice):
        return slice, _plain((value.start, value.stop, value.step), given)
    return type(value), repr(value) if isinstance(value, (float, complex)) else value  # 0.0 == -0.0, and nan != nan


def described_value(value: Any) -> Any:
    """What the lowering asks of a FakeTensor, symbol or plain value, as something that can be compared."""
    if isinstance(value, torch.Tensor):
        plain = value.layout is torch.strided and not value.is_quantized
        where = (tuple(_numbers(value.stride())), *_numbers([value.storage_offset()])) if plain else ()
        flags = value.is_conj(), value.is_neg(), value.layout
        return value.dtype, value.device, tuple(_numbers(value.shape)), where, flags, type(value)
    if isinstance(value, (tuple, list)):
        return type(value), *map(described_value, value)
    return next(_numbers([value]))


def _numbers(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        symbolic = isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
        yield (type(value), value.node.expr) if symbolic else value
