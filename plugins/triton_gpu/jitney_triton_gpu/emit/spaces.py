"""Axes of a kernel's tile: a range of numbers, cut into blocks, that stands for one or several nested loops."""

from __future__ import annotations

from dataclasses import dataclass

from jitney_lowering.index import Index, Spell, Var, product
from jitney_triton_gpu.emit.indices import text


@dataclass(frozen=True)
class Axis:
    """One dimension of a tile.

    Args:
        name: of the variable in the code; ``NAME_ok`` is its mask, ``NAMEBLOCK`` its block size.
        loops: what it goes through, outermost first.
        block: elements in the tile, a power of two.
        full: is every block that the code is for full, whatever the count?
    """

    name: str
    loops: tuple[Var, ...]
    block: int
    full: bool = False

    @property
    def count(self) -> Index:
        """How many iterations."""
        return product(self.loops)

    @property
    def symbol(self) -> str:
        """The name of the block size in the code."""
        return f"{self.name.upper()}BLOCK"

    @property
    def fits(self) -> bool:
        """Is every block full?"""
        return self.full or self.block == 1 or (self.count.value is not None and self.count.value % self.block == 0)

    def list_of(self, var: Var) -> tuple[Var, ...]:
        """The nested loops that a variable is one of."""
        return self.loops

    def spelled(self, var: Var, spell: Spell) -> str:
        """The value of one of the loops."""
        loops = self.list_of(var)
        at = loops.index(var)
        inner = product(loops[at + 1 :])
        shown = self.name if inner.value == 1 else f"{self.name} // {text(inner, spell)}"
        return shown if at == 0 else f"{shown} % {text(var.size, spell)}"


def column_or_line(subscript: str, symbol: str) -> str:
    """The shape of an axis' numbers, which a subscript such as ``[:, None]`` puts along one of two dimensions."""
    return subscript.replace("None", "1").replace(":", symbol)


@dataclass(frozen=True)
class Arrangement:
    """The dimensions of a tile of rows and their elements.

    Triton lays threads out along the last one where it cannot tell how memory goes on.

    Args:
        tiled: are there several rows in a tile?
        across: does memory go on from row to row, so that rows are the last dimension?
    """

    tiled: bool
    across: bool = False

    @property
    def reduced(self) -> int:
        """The dimension that a row's elements lie along."""
        return 1 if self.tiled and not self.across else 0

    @property
    def of_rows(self) -> str | None:
        """The subscript of the rows' numbers; None for a single one."""
        if not self.tiled:
            return None
        return "[None, :]" if self.across else "[:, None]"

    @property
    def of_elements(self) -> str:
        """The subscript of the elements' numbers."""
        if not self.tiled:
            return ""
        return "[:, None]" if self.across else "[None, :]"

    def tile(self, rows: Axis, elements: Axis) -> list[Axis]:
        """The axes in the order of the dimensions."""
        if not self.tiled:
            return [elements]
        return [elements, rows] if self.across else [rows, elements]
