"""In which order a reduction goes through what it reduces: along memory, with work for all threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jitney_lowering.aten.tensor import ZERO, Shape, Tensor, corner, count
from jitney_lowering.index import Index, Var
from jitney_lowering.ir.loops import Buffer
from jitney_lowering.ir.values import Load, walk
from jitney_lowering.policy import LINE, Policy

SHARED = 1 << 16  # elements of a row that threads share, at least
MUCH_SMALLER = 4  # times
BESIDE = 16  # elements side by side that are worth going along what a copy is made of, at least


@dataclass(frozen=True)
class RowOrder:
    """What decides about it.

    Args:
        hint: the number that a size is now.
        buffers: of the program.
        policy: of the machine.
    """

    hint: Callable[[Index], int]
    buffers: Mapping[str, Buffer]
    policy: Policy

    def loops(self, source: Tensor, every: Sequence[Var], reduced: Sequence[Var], kind: str) -> tuple[Var, ...]:
        """The loops of a reduction, outermost first.

        Args:
            source: what is reduced.
            every: a variable for each of its dimensions.
            reduced: those that go.
            kind: one of ``loops.REDUCTIONS``.
        """
        order = [v for v in self._along_memory(source, every) if v.size != 1]
        return tuple(self._shared(order, reduced, kind))

    def _along_memory(self, source: Tensor, every: Sequence[Var]) -> list[Var]:
        """The dimensions as the data lies in memory: of a copy, if lines matter, as what is copied does."""
        lies = source.strided.stride if source.strided is not None else None
        if lies is None and self.policy.scattered_row:
            lies = self._read_strides(source, every)
        strides = source.wanted if lies is None else lies
        if strides is None:
            return list(every)
        hints = [self.hint(s) for s in strides]
        return [every[d] for d in sorted(range(len(every)), key=lambda d: -abs(hints[d]))]

    def _read_strides(self, source: Tensor, every: Sequence[Var]) -> Shape | None:
        """The strides of the only tensor of this size that is read; None without one, or with little side by side."""
        own = self.hint(count(source.size))
        found: set[Shape] = set()
        for v in walk(source.load(corner(source.size))):
            if isinstance(v, Load) and self.hint(count(self.buffers[v.buffer].size)) * MUCH_SMALLER > own:
                strides = [v.index.stride(var) for var in every]
                if v.indirect or None in strides:
                    return None
                found.add(tuple([s for s in strides if s is not None]))
        if len(found) != 1:
            return None
        (lies,) = found
        beside = [self.hint(var.size) for var, stride in zip(every, lies, strict=True) if stride == 1]
        return lies if max(beside, default=0) >= BESIDE and ZERO not in lies else None

    def _shared(self, order: list[Var], reduced: Sequence[Var], kind: str) -> list[Var]:
        """With work for all threads: of few rows with much to do, side by side with others, each has a part of all."""
        first = next(n for n, v in enumerate(order) if v in reduced)
        rows, work = (math.prod(self.hint(v.size) for v in part) for part in (order[:first], order[first:]))
        beside = order[-1] not in reduced and not kind.startswith("arg")
        if not self.policy.scattered_row or not first or not beside or rows >= self.policy.few_rows or work < SHARED:
            return order
        return [order[first], *order[:first], *order[first + 1 :]]

    def is_scattered(self, source: Tensor, every: Sequence[Var], dims: Sequence[int]) -> bool:
        """Does a row take a few neighbours of each of many lines of memory, the rest of which are other rows'?"""
        extents = {every[d]: self.hint(source.size[d]) for d in dims if source.size[d] != 1}
        if not self.policy.scattered_row or source.strided is not None:
            return False
        for v in walk(source.load(corner(source.size))):
            if not isinstance(v, Load) or v.indirect:
                continue
            strides = [(v.index.stride(var), n) for var, n in extents.items()]
            steps = sorted((self.hint(stride), n) for stride, n in strides if stride is not None)
            run = 1
            for stride, n in steps:
                run = run * n if stride == run else run
            size, lines = v.dtype.itemsize, math.prod(n for _, n in steps) // max(run, 1)
            next_one = min((stride for stride, _ in steps if stride > run), default=0)
            apart = run > 1 and run * size < LINE <= next_one * size
            if apart and lines * LINE > self.policy.scattered_row:
                return True
        return False
