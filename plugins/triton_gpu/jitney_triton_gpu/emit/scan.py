"""Scans in Triton: running results along one dimension of a tile, and what goes on from one piece of a row to the next.

As in eager's kernels, what is put together first is a tree.
"""

from __future__ import annotations

import torch

from jitney_lowering.ir import SORT, Scan, ref
from jitney_triton_gpu.emit.direction import BackwardScan
from jitney_triton_gpu.emit.reduce import Reduction
from jitney_triton_gpu.emit.spaces import Arrangement, Axis, column_or_line
from jitney_triton_gpu.emit.writer import Register, Writer


class Prefix:
    """A scan of rows.

    Args:
        writer: of the function; where there are pieces, before the loop over these.
        statement: what is scanned.
        arrangement: of the tile.
        pieces: is a row gone through piece by piece?
    """

    def __init__(self, writer: Writer, statement: Scan, arrangement: Arrangement, pieces: bool) -> None:
        self.statement = statement
        self.arrangement = arrangement
        self.backwards = isinstance(statement, BackwardScan)
        self.made = Reduction(statement.kind, statement.value.dtype)
        self.carry = writer.name("a") if pieces else ""
        if pieces:
            start = self.made.start
            if arrangement.of_rows is not None:
                rows = writer.tile[1 if arrangement.across else 0].symbol
                start = f"tl.broadcast_to({start}, {column_or_line(arrangement.of_rows, rows)})"
            writer.line(f"{self.carry} = {start}")

    def step(self, writer: Writer, axis: Axis) -> None:
        """The results of one tile, as a register that later statements of the nest read."""
        made, dim = self.made, self.arrangement.reduced
        value, _ = made.operands(writer, self.statement.value, None, axis)
        name = writer.name("c")
        ending = ", reverse=True" if self.backwards else ""
        if made.kind == SORT:
            assert not self.carry, "a row that is sorted piece by piece"
            writer.line(f"{name} = tl.sort({value})")
        else:
            writer.line(f"{name} = tl.associative_scan({value}, {dim}, {made.combine}{ending})")
        if self.carry:
            writer.line(f"{name} = {made.combine}({self.carry}, {name})")
            lane = f"tl.arange(0, {axis.symbol}){self.arrangement.of_elements}"
            end = "0" if self.backwards else f"{axis.symbol} - 1"
            last = f"tl.where({lane} == {end}, {name}, {made.start})"
            keeping = ", keep_dims=True" if self.arrangement.tiled else ""
            writer.line(f"{self.carry} = tl.reduce({last}, {dim}, {made.combine}{keeping})")
        given = made.given(name)
        if made.kind == "sum" and made.dtype.is_floating_point:
            given = f"({name} + 0.0)"  # eager begins with 0: a sum of -0.0 is 0.0
        if given != name:
            name = writer.name("c")
            writer.line(f"{name} = {given}")
        dtype: torch.dtype = self.statement.value.dtype
        writer.know(ref(self.statement.name, dtype), Register(name, frozenset(a.name for a in writer.tile)))
