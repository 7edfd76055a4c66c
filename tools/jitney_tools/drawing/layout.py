"""Where the nodes of a graph go in a picture: layers from top to bottom, few crossings, straight lines.

The method is that of Sugiyama, Tagawa and Toda (1981): layers by longest path, stand-ins where an edge crosses a layer,
order within layers by barycentres; places along a layer are the least-squares ones that keep the order (isotonic
regression by pooling), so the picture of a chain is a straight line. Parts that do not hang together are laid out by
themselves and set beside each other, in rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import networkx

GAP_X, GAP_Y = 14.0, 22.0
PART_GAP = 30.0
SWEEPS = 8
STAND_IN = 8.0  # width


@dataclass
class Box:
    """A node to be placed: its size, the boxes that it reads, and then the place of its upper left corner."""

    width: float
    height: float
    inputs: tuple[int, ...] = ()
    x: float = 0.0
    y: float = 0.0


@dataclass
class Picture:
    """Boxes with places; edges as points, from the lower side of a box to the upper side of another."""

    boxes: list[Box]
    edges: list[list[tuple[float, float]]] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


def lay_out(boxes: Sequence[Box]) -> Picture:
    """Give each box a place. ``inputs`` are numbers of earlier boxes."""
    picture = Picture(list(boxes))
    if not boxes:
        return picture
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(boxes)))
    graph.add_edges_from((i, n) for n, box in enumerate(boxes) for i in box.inputs)
    parts = [_Part(picture, sorted(nodes)) for nodes in networkx.connected_components(graph)]
    for part in parts:
        part.place()
    _shelve(picture, parts)
    return picture


def _shelve(picture: Picture, parts: list[_Part]) -> None:
    """Parts in rows, about as wide as high in all."""
    area = sum((p.width + PART_GAP) * (p.height + PART_GAP) for p in parts)
    limit = max(1.3 * math.sqrt(area), *(p.width for p in parts))
    x = y = tallest = 0.0
    for part in parts:
        if x and x + part.width > limit:
            x, y, tallest = 0.0, y + tallest + PART_GAP, 0.0
        part.shift(x, y)
        picture.width = max(picture.width, x + part.width)
        x += part.width + PART_GAP
        tallest = max(tallest, part.height)
    picture.height = y + tallest


class _Part:
    """Boxes that hang together. Those past the real ones are stand-ins, which edges go through."""

    def __init__(self, picture: Picture, numbers: list[int]) -> None:
        self.picture = picture
        self.numbers = numbers
        local = {number: at for at, number in enumerate(numbers)}
        self.boxes = [picture.boxes[n] for n in numbers]
        self.reads = [[local[i] for i in dict.fromkeys(box.inputs)] for box in self.boxes]
        self.width = self.height = 0.0
        self.paths: list[list[int]] = []

    def place(self) -> None:
        """Places from (0, 0) on."""
        layer = self._layers()
        self._stand_ins(layer)
        rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
        for at, number in enumerate(layer):
            rows[number].append(at)
        above: list[list[int]] = [[] for _ in self.boxes]
        below: list[list[int]] = [[] for _ in self.boxes]
        for path in self.paths:
            for up, down in itertools.pairwise(path):
                below[up].append(down)
                above[down].append(up)
        self._order(rows, above, below)
        self._along(rows, above, below)
        y = 0.0
        for row in rows:
            height = max(self.boxes[at].height for at in row)
            for at in row:
                self.boxes[at].y = y + (height - self.boxes[at].height) / 2
            y += height + GAP_Y
        left = min(box.x for box in self.boxes)
        for box in self.boxes:
            box.x -= left
        self.width = max(box.x + box.width for box in self.boxes)
        self.height = y - GAP_Y

    def shift(self, x: float, y: float) -> None:
        """Move all of it, and hand its edges to the picture."""
        for box in self.boxes:
            box.x += x
            box.y += y
        for path in self.paths:
            first, *middle, last = (self.boxes[at] for at in path)
            points = [(first.x + first.width / 2, first.y + first.height)]
            for box in middle:
                points += [(box.x + box.width / 2, box.y), (box.x + box.width / 2, box.y + box.height)]
            self.picture.edges.append([*points, (last.x + last.width / 2, last.y)])

    def _layers(self) -> list[int]:
        """By longest path; then what reads no more than it is read comes down, to right above the first reader."""
        layer = [0] * len(self.boxes)
        for at, reads in enumerate(self.reads):
            if reads:
                layer[at] = 1 + max(layer[i] for i in reads)
        users: list[list[int]] = [[] for _ in self.boxes]
        for at, reads in enumerate(self.reads):
            for i in reads:
                users[i].append(at)
        for at in range(len(self.boxes) - 1, -1, -1):
            if users[at] and len(self.reads[at]) <= len(users[at]):
                layer[at] = min(layer[u] for u in users[at]) - 1
        return layer

    def _stand_ins(self, layer: list[int]) -> None:
        for at, reads in enumerate(self.reads):
            for i in reads:
                path = [i]
                for level in range(layer[i] + 1, layer[at]):
                    path.append(len(self.boxes))
                    self.boxes.append(Box(STAND_IN, 0.0))
                    layer.append(level)
                self.paths.append([*path, at])

    def _order(self, rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
        rank = [0.0] * len(self.boxes)
        for row in rows:
            for n, at in enumerate(row):
                rank[at] = n
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            for row in rows if down else reversed(rows):
                near = above if down else below
                wish = {at: _mean([rank[n] for n in near[at]], rank[at]) for at in row}
                row.sort(key=wish.__getitem__)
                for n, at in enumerate(row):
                    rank[at] = n

    def _along(self, rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
        centre = [0.0] * len(self.boxes)
        for row in rows:
            self._settle(row, centre, dict.fromkeys(row, 0.0))
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            for row in rows if down else reversed(rows):
                near = above if down else below
                self._settle(row, centre, {at: _mean([centre[n] for n in near[at]], centre[at]) for at in row})
        for at, box in enumerate(self.boxes):
            box.x = centre[at] - box.width / 2

    def _settle(self, row: list[int], centre: list[float], wish: dict[int, float]) -> None:
        """The centres nearest to what is wished that keep order and distance: pooled where wishes are too close."""
        offsets: list[float] = []
        total = 0.0
        for n, at in enumerate(row):
            if n:
                total += (self.boxes[row[n - 1]].width + self.boxes[at].width) / 2 + GAP_X
            offsets.append(total)
        pools: list[tuple[float, int]] = []  # (mean, how many)
        for n, at in enumerate(row):
            mean, count = wish[at] - offsets[n], 1
            while pools and pools[-1][0] > mean:
                other, many = pools.pop()
                mean, count = (mean * count + other * many) / (count + many), count + many
            pools.append((mean, count))
        means = [mean for mean, count in pools for _ in range(count)]
        for at, mean, offset in zip(row, means, offsets, strict=True):
            centre[at] = mean + offset


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
