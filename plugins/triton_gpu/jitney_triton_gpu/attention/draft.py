"""What the functions of attention have in common: where queries, keys and values lie, and a score of a tile."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from jitney_lowering.attention import FAR, Mask, Tile, masks, without
from jitney_lowering.index import Index, Var, index
from jitney_lowering.ir import Kernel, Nest, Store, Value, index_width
from jitney_triton_gpu.attention.bounds import span
from jitney_triton_gpu.emit.dtypes import NAMES
from jitney_triton_gpu.emit.function import Draft, blocks_of
from jitney_triton_gpu.emit.spaces import Axis
from jitney_triton_gpu.emit.writer import Register

LOG2E = repr(math.log2(math.e))
LEAST = 16  # elements that tensor units take along each side


@dataclass(frozen=True)
class Matrices:
    """Tensors of (..., rows, features) as a function reads or writes them.

    Args:
        name: the buffer's.
        dtype: of its elements.
        size, stride: of the tensor, in elements.
    """

    name: str
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @staticmethod
    def of(name: str, tensor: Tensor) -> Matrices:
        """Those of a tensor."""
        return Matrices(name, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))

    @property
    def extent(self) -> int:
        """Elements that its memory spans."""
        return 1 + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))

    def without_first(self) -> Matrices:
        """Those of the first number along the first dimension."""
        return replace(self, size=self.size[1:], stride=self.stride[1:])

    def of_groups(self, dims: int = 2) -> Matrices:
        """Without the batch's last dimension: that of matrices of one row each, which become rows of one.

        ``dims``: of a matrix. Of matrices that are the same along that dimension it is just left out.
        """
        at = len(self.size) - dims
        gone = at - 1 if self.stride[at - 1] == 0 else at
        size, stride = list(self.size), list(self.stride)
        del size[gone], stride[gone]
        return replace(self, size=tuple(size), stride=tuple(stride))

    def first(self, batch: Var, dims: int = 2) -> Index:
        """Where the matrix of a number in the batch begins; ``dims``: of a matrix."""
        place, inner = index(0), index(1)
        count = len(self.size) - dims
        for at in reversed(range(count)):
            outer = batch // inner
            place = place + (outer if at == 0 else outer % self.size[at]) * self.stride[at]
            inner = inner * self.size[at]
        return place


def groups(query: Matrices, key: Matrices, value: Matrices) -> int:
    """How many matrices of one query each look at the same keys: 1 if it is each for itself."""
    if query.size[-2] > 1 or len(query.size) < 3 or not query.size[:-2] == key.size[:-2] == value.size[:-2]:
        return 1
    shares = query.stride[-3] != 0 and key.stride[-3] == value.stride[-3] == 0
    return query.size[-3] if shares else 1


@dataclass(frozen=True)
class Problem:
    """One attention.

    Args:
        tile: its score.
        query, key, value: (..., M, D), (..., N, D), (..., N, E).
        extents: of each tensor that is read or written: elements that its memory spans.
        precision: how float32 is multiplied, in Triton's words.
    """

    tile: Tile
    query: Matrices
    key: Matrices
    value: Matrices
    extents: Mapping[str, int]
    precision: str = "ieee"

    @property
    def batch(self) -> int:
        """How many matrices."""
        return math.prod(self.query.size[:-2])

    @property
    def queries(self) -> int:
        """Rows of a matrix of queries."""
        return self.query.size[-2]

    @property
    def keys(self) -> int:
        """Rows of a matrix of keys."""
        return self.key.size[-2]

    def of_groups(self) -> Problem:
        """With queries that look at the same keys as those of one matrix, where each matrix has one query.

        Whoever reads the keys then reads them once. The same problem where there are no such queries.
        """
        if groups(self.query, self.key, self.value) == 1:
            return self
        query, key, value = (m.of_groups() for m in (self.query, self.key, self.value))
        return replace(self, tile=self.tile.of_groups(query.size[-2]), query=query, key=key, value=value)

    @functools.cached_property
    def wide(self) -> bool:
        """Must places be counted in 64 bits?"""
        return max(self.extents.values()) > index_width.NARROW


@dataclass(frozen=True)
class Blocks:
    """How much one program computes at a time: queries by keys."""

    queries: int
    keys: int
    warps: int
    stages: int


def padded(features: int) -> int:
    """Features in a tile."""
    return max(LEAST, 1 << (features - 1).bit_length())


@dataclass
class Body:
    """A function of attention under construction.

    Args:
        problem: what to compute.
        name: the function's.
        blocks: of queries and keys.
        more: other matrices that it reads or writes.
    """

    problem: Problem
    name: str
    blocks: Blocks
    more: tuple[Matrices, ...] = ()
    draft: Draft = field(init=False)
    known: tuple[Mask, ...] = ()
    numbers: dict[Value, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem, tile = self.problem, self.problem.tile
        self.z = Axis("z", (tile.batch,), 1)
        self.y = Axis("y", (tile.row,), self.blocks.queries)
        self.x = Axis("x", (tile.column,), self.blocks.keys)
        values = [v for v in (tile.scored, tile.gradient) if v is not None]
        matrices = (problem.query, problem.key, problem.value, *self.more)
        buffers = {m.name: m.dtype for m in matrices} | tile.dtypes
        statements = tuple(Store(matrices[-1].name, index(0), v) for v in values)
        kernel = Kernel(self.name, (tile.batch, tile.row), (Nest((tile.column,), statements),), buffers)
        self.draft = Draft(kernel, self.name, [self.y, self.x], problem.wide)
        self.writer = self.draft.writer
        self.line = self.writer.line
        self.precision = f', input_precision="{problem.precision}"' if problem.query.dtype is torch.float32 else ""

    def begin(
        self, axis: Axis, count: int, matrices: Sequence[Matrices], rows: Sequence[Matrices], parts: int = 1
    ) -> Index:
        """What each program begins with: its matrix of the batch, and its block of queries or keys from ``first`` on.

        Args:
            axis: ``y`` for queries, ``x`` for keys.
            count: how many there are.
            matrices, rows: of (..., M, D), of (..., M): where the program's begin.
            parts: programs that share what a block looks at: each has a number ``part``.

        Returns:
            how many programs there are.
        """
        columns = axis is self.x
        blocks = blocks_of(index(count), axis.block)
        self.writer.enter([self.z, axis])
        self.line("program = tl.program_id(0)")
        if parts > 1:
            self.line(f"part = program % {parts}")
            self.line(f"program = program // {parts}")
        self.draft.axis(self.z, f"program // {blocks}", None)
        at = f"program % {blocks}"  # of queries the last come first: behind a causal mask they see most
        self.line(f"first = {at if columns else f'({blocks} - 1 - {at})'} * {axis.symbol}")
        self.draft.axis(axis, "first", "[None, :]" if columns else "[:, None]")
        self.features("d", self.problem.query.size[-1])
        self.features("e", self.problem.value.size[-1])
        for each in matrices:
            self.base(each)
        for each in rows:
            self.base(each, 1)
        return blocks * self.problem.batch * parts

    def features(self, name: str, count: int) -> None:
        """The range ``name`` of a matrix's features, and its mask if it is longer."""
        self.draft.blocks[f"{name.upper()}BLOCK"] = padded(count)
        self.line(f"{name} = tl.arange(0, {name.upper()}BLOCK)")

    def base(self, matrices: Matrices, dims: int = 2) -> str:
        """The name of where the program's matrix begins."""
        name = f"at_{matrices.name}"
        self.line(f"{name} = {matrices.name} + {self.writer.index(matrices.first(self.problem.tile.batch, dims))}")
        return name

    def place(self, matrices: Matrices, row: str, feature: str, name: str, count: int, axis: str) -> tuple[str, str]:
        """An address and a mask of a tile.

        Args:
            matrices: whose ``base`` there is.
            row, feature: as text, each along its dimension of the tile.
            name: of the range of features.
            count: of features.
            axis: of the rows: ``y`` or ``x``.
        """
        *_, down, across = matrices.stride
        masks = [] if padded(count) == count else [f"({feature} < {count})"]
        of = self.y if axis == "y" else self.x
        if not of.fits:
            masks.append(f"({row} < {of.count})")
        return f"at_{matrices.name} + {row} * {down} + {feature} * {across}", " & ".join(masks)

    def load(self, to: str, place: tuple[str, str]) -> None:
        """A tile, with zeros where there is nothing."""
        address, mask = place
        self.line(f"{to} = tl.load({address}{f', {mask}, other=0.0' if mask else ''})")

    def store(self, place: tuple[str, str], value: str, dtype: torch.dtype) -> None:
        """A tile's elements that are there."""
        address, mask = place
        self.line(f"tl.store({address}, {value}.to({NAMES[dtype]}){f', {mask}' if mask else ''})")

    def load_row(self, to: str, matrices: Matrices, other: str = "0.0") -> None:
        """A number of each query."""
        mask = "" if self.y.fits else f", y_ok, other={other}"
        self.line(f"{to} = tl.load(at_{matrices.name} + y * {matrices.stride[-1]}{mask})")

    def store_row(self, matrices: Matrices, shown: str) -> None:
        """The same to memory."""
        mask = "" if self.y.fits else ", y_ok"
        self.line(f"tl.store(at_{matrices.name} + y * {matrices.stride[-1]}, {shown}{mask})")

    def loops(self, axis: Axis, inner: Callable[[], None], parts: int = 1) -> None:
        """Go through all keys (``x``) or queries (``y``) that those of the program, from ``first`` on, have to do with.

        ``inner`` writes what is done for a block, once for those of which all is there and seen, and once for others.
        ``parts``: programs that share them in equal parts of whole blocks.
        """
        columns = axis is self.x
        mine, count = (self.y, self.problem.keys) if columns else (self.x, self.problem.queries)
        tile = self.problem.tile
        found = masks(tile.scored, tile.row, tile.column, safe=tile.safe)
        last = f"(first + {mine.symbol} - 1)"
        keys = self.problem.keys
        block = (axis.symbol, axis.block)
        made = span(found, ("first", last), count, block, columns=columns, keys=keys, name=self.number)
        ranges = made.ranges
        if self.problem.query.dtype is torch.float32:  # products take so long that comparing costs nothing
            ranges = (("begin", "end", False),)
        self.draft.blocks[axis.symbol] = axis.block
        for line in made.lines:
            self.line(line)
        if parts > 1:
            ranges = self.shared(ranges, axis, parts)
        stages = self.blocks.stages
        for begin, end, full in ranges:
            own = replace(axis, full=full)
            self.known = made.known if full else ()
            self.x, self.y = (own, self.y) if columns else (self.x, own)
            self.writer.tile = [self.y, self.x]
            start = f"{axis.name}_start"
            header = f"for {start} in tl.range({begin}, {end}, {axis.symbol}, num_stages={stages}):"
            self.writer.enter([own], header)
            self.draft.axis(own, start, "[None, :]" if columns else "[:, None]")
            inner()
            self.writer.leave()

    def shared(
        self, ranges: Sequence[tuple[str, str, bool]], axis: Axis, parts: int
    ) -> tuple[tuple[str, str, bool], ...]:
        """What of ranges from ``begin`` to ``end`` is the program's own ``part``: all have as many whole blocks."""
        several = parts * axis.block
        self.line(f"share = tl.maximum(end - begin + {several - 1}, 0) // {several} * {axis.symbol}")
        self.line("own_begin = begin + part * share")
        self.line("own_end = own_begin + share")
        return tuple((f"tl.maximum({b}, own_begin)", f"tl.minimum({e}, own_end)", full) for b, e, full in ranges)

    def number(self, value: Value) -> str:
        """The name of what is the same in all of a matrix, and near enough for 32 bits."""
        if value not in self.numbers:
            shown, self.numbers[value] = self.writer.value(value).name, self.writer.name("number")
            self.line(f"{self.numbers[value]} = tl.minimum(tl.maximum({shown}, {-FAR}), {FAR}).to(tl.int32)")
        return self.numbers[value]

    def score(self, products: str) -> str:
        """The name of a tile of what the softmax is taken of; minus infinity where there are no such keys."""
        self.writer.know(self.problem.tile.products, Register(products, frozenset({"x", "y"})))
        shown = self.value(without(self.problem.tile.scored, self.known))
        if self.x.fits:
            return shown
        name = self.writer.name("scored")
        self.line(f'{name} = tl.where(x_ok, {shown}, float("-inf"))')
        return name

    def gradient(self, given: str) -> str:
        """The name of a tile of gradients of the products; ``given``: those of what the softmax is taken of."""
        tile = self.problem.tile
        assert tile.gradient is not None
        self.writer.know(tile.given, Register(given, frozenset({"x", "y"})))
        return self.masked(self.value(without(tile.gradient, self.known)))

    def masked(self, shown: str) -> str:
        """A tile with zeros where there are no such queries or keys."""
        mask = self.writer.mask(frozenset({"x", "y"}))
        return f"tl.where({mask}, {shown}, 0.0)" if mask else shown

    def value(self, value: Value) -> str:
        """A value over the whole tile."""
        return self.writer.spread(self.writer.value(value))
