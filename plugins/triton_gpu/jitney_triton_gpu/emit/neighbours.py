"""Pairs of neighbours in memory, of which a thread has both: one load or store for them.

Triton lays threads out along what it sees to be contiguous. Steps of two elements are not; threads that lie across rows
instead take several times as long.
"""

from __future__ import annotations

from collections.abc import Mapping

from jitney_lowering.index import Index, Var, linear
from jitney_lowering.ir import HALVES, Load, Nest, Store, walk
from jitney_triton_gpu.emit.spaces import Axis
from jitney_triton_gpu.emit.writer import Register, Writer


class Neighbours:
    """Those of a nest.

    Args:
        writer: of the function.
        nest: its statements.
        axis: of its loops.
        start: the text of the first number of the axis' block.
    """

    def __init__(self, writer: Writer, nest: Nest, axis: Axis, start: str) -> None:
        self.writer, self.nest, self.axis, self.start = writer, nest, axis, start
        self.numbers = ""  # of all elements of the pairs, once there are some

    def load(self) -> None:
        """Lines that load both of each pair."""
        if not self._is_last:
            return
        loads = {v for s in self.nest.statements for v in walk(s.value) if isinstance(v, Load)}
        plain = [v for v in loads if v.mask is None and not v.indirect and v.buffer not in self.writer.written]
        places = {(v.buffer, v.index): v for v in plain}
        for first in sorted(plain, key=str):
            second, rest = places.get((first.buffer, first.index + 1)), self._rest(first.index)
            if second is None or rest is None or first.dtype.itemsize < 2 or self.writer.is_known(first):
                continue
            if not self._is_everywhere(first.buffer, rest):
                continue
            given, mask = self._place(first.buffer, rest)
            both, one, other = (self.writer.name() for _ in range(3))
            self.writer.line(f"{both} = tl.load({given}{mask and f', {mask}'})")
            converted = ".to(tl.float32)" if first.dtype in HALVES else ""
            shape = ", ".join([*(tile.symbol for tile in self.writer.tile), "2"])
            self.writer.line(f"{one}, {other} = tl.split(tl.reshape({both}, [{shape}]){converted})")
            axes = frozenset(tile.name for tile in self.writer.tile)
            self.writer.know(first, Register(one, axes))
            self.writer.know(second, Register(other, axes))

    def store(self, stores: Mapping[Store, Register]) -> list[Store]:
        """Lines that store both of each pair; what is left."""
        if not self._is_last:
            return list(stores)
        places = {(s.buffer, s.index): s for s in stores}
        left = dict(stores)
        for first in stores:
            second, rest = places.get((first.buffer, first.index + 1)), self._rest(first.index)
            if second is None or rest is None or first.value.dtype.itemsize < 2 or not {first, second} <= left.keys():
                continue
            if not self._is_everywhere(first.buffer, rest):
                continue
            given, mask = self._place(first.buffer, rest)
            one, other = (self.writer.spread(left.pop(s)) for s in (first, second))
            shape = ", ".join([*(tile.symbol for tile in self.writer.tile[:-1]), f"2 * {self.axis.symbol}"])
            both = f"tl.reshape(tl.join({one}, {other}), [{shape}])"
            self.writer.line(f"tl.store({given}, {both}{mask and f', {mask}'})")
        return list(left)

    @property
    def _is_last(self) -> bool:
        """Do a row's elements lie along the last dimension of the tile?"""
        return self.writer.tile[-1].name == self.axis.name

    def _is_everywhere(self, buffer: str, rest: Index) -> bool:
        """Has each row of the tile pairs of its own? Those of all rows would be in the registers of each warp."""
        return {tile.name for tile in self.writer.tile[:-1]} <= self.writer.address(buffer, rest)[1]

    def _rest(self, place: Index) -> Index | None:
        """The place without twice the axis' number; None if it does not go along so."""
        rest = place - linear(self.nest.loops) * 2
        return None if any(isinstance(atom, Var) and atom in self.nest.loops for atom in rest.atoms) else rest

    def _place(self, buffer: str, rest: Index) -> tuple[str, str]:
        """The text of the addresses of all elements of the pairs, and that of their mask."""
        if not self.numbers:
            self.numbers = self.writer.name("p")
            along = f"tl.arange(0, 2 * {self.axis.symbol})" + ("[None, :]" if len(self.writer.tile) > 1 else "")
            along += ".to(tl.int64)" if self.writer.wide else ""
            self.writer.line(f"{self.numbers} = {along if self.start == '0' else f'({self.start}) * 2 + {along}'}")
            if not self.axis.fits:
                self.writer.line(f"{self.numbers}_ok = {self.numbers} < {self.writer.index(self.axis.count * 2)}")
        shown, axes = self.writer.address(buffer, rest)
        masks = [self.writer.mask(axes), "" if self.axis.fits else f"{self.numbers}_ok"]
        return f"{shown} + {self.numbers}", " & ".join(filter(None, masks))
