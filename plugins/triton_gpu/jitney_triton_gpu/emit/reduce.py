"""Reductions in Triton: an accumulator over the tile, which is reduced along one dimension at the end."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from jitney_lowering.index import Index
from jitney_lowering.ir import Accumulate, Reduce, Value, identity
from jitney_triton_gpu.emit.dtypes import literal, register
from jitney_triton_gpu.emit.spaces import Axis
from jitney_triton_gpu.emit.writer import Register, Writer

# kind -> the helper that puts two values together, for floats and for integers
COMBINE: dict[str, tuple[str, str]] = {
    "sum": ("add", "add"),
    "prod": ("multiply", "multiply"),
    "max": ("maximum_nan", "maximum_int"),
    "min": ("minimum_nan", "minimum_int"),
    "any": ("either", "either"),
    "all": ("both", "both"),
    "argmax": ("first_greater", "first_greater"),
    "argmin": ("first_lesser", "first_lesser"),
    "logsumexp": ("logaddexp", "logaddexp"),
}
LAST = {"tl.int32": 2**31 - 1, "tl.int64": 2**62}  # a position after all others


def counted(writer: Writer) -> str:
    """The dtype of positions in a kernel's registers."""
    return "tl.int64" if writer.wide else "tl.int32"


@dataclass(frozen=True)
class Reduction:
    """What is accumulated: its kind and the dtype of the values."""

    kind: str
    dtype: torch.dtype

    @property
    def combine(self) -> str:
        """The helper that puts two values together."""
        return f"helpers.{COMBINE[self.kind][not self.dtype.is_floating_point]}"

    @property
    def positions(self) -> bool:
        """Does it give the position of an extreme?"""
        return self.kind.startswith("arg")

    @property
    def held(self) -> str:
        """The dtype of accumulators: truth values are held as int32."""
        return "tl.int32" if self.dtype is torch.bool else register(self.dtype)

    @property
    def start(self) -> str:
        """What it begins with."""
        value = identity(self.kind, self.dtype)
        if self.dtype is torch.bool:
            return f"tl.full([], {int(value)}, tl.int32)"
        return literal(value, self.dtype)

    def taken(self, value: str) -> str:
        """A value as accumulators hold it."""
        return f"{value}.to(tl.int32)" if self.dtype is torch.bool else value

    def given(self, value: str) -> str:
        """What an accumulator holds as a value."""
        return f"({value} != 0)" if self.dtype is torch.bool else value

    def along(self, value: str, dim: int, keep: bool) -> str:
        """A tile reduced along a dimension; of positions a pair."""
        keeping = ", keep_dims=True" if keep else ""
        if self.kind == "sum" and self.dtype.is_floating_point:
            return f"(tl.sum({value}, {dim}{keeping}) + 0.0)"  # eager begins with 0: a sum of -0.0 is 0.0
        return f"tl.reduce({value}, {dim}, {self.combine}{keeping})"

    def operands(self, writer: Writer, value: Value, position: Index | None, axis: Axis) -> tuple[str, str]:
        """The tile to be reduced, and that of the positions or nothing; what is not there does not count."""
        given = self.taken(writer.spread(writer.value(value)))
        at = ""
        if position is not None:
            kind = counted(writer)  # sizes may have more bits
            shown = f"(tl.full([], 0, {kind}) + {writer.index(position)}).to({kind})"
            number = Register(shown, writer.axes_of(position))
            at = writer.spread(number)
        if not axis.fits:
            given = f"tl.where({axis.name}_ok, {given}, {self.start})"
            at = at and f"tl.where({axis.name}_ok, {at}, {LAST[counted(writer)]})"
        return given, at

    def finish(self, writer: Writer, value: str, at: str, dim: int, keep: bool, best: str = "") -> str:
        """A line that reduces a tile along a dimension; the variable of the result.

        Of positions: first the extreme, unless it is known (``best``), then the least position that has it. That is
        three times as fast as to reduce pairs.
        """
        name = writer.name("t")
        if not at:
            writer.line(f"{name} = {self.given(self.along(value, dim, keep))}")
            return name
        best = best or Reduction(self.kind.removeprefix("arg"), self.dtype).along(value, dim, keep=True)
        last = f"tl.full([], {LAST[counted(writer)]}, {counted(writer)})"
        places = f"helpers.places({value}, {best}, {at}, {last}, {self.dtype.is_floating_point})"
        writer.line(f"{name} = {Reduction('min', torch.int64).along(places, dim, keep)}.to(tl.int64)")
        return name


class Running:
    """An accumulator over the pieces of what is reduced; made before the loop."""

    def __init__(self, writer: Writer, statement: Reduce | Accumulate) -> None:
        self.statement = statement
        self.position = statement.position if isinstance(statement, Reduce) else None
        self.made = Reduction(statement.kind, statement.value.dtype)
        self.name = writer.name("a")
        writer.line(f"{self.name} = tl.broadcast_to({self.made.start}, {writer.shape()})")
        self.at = ""
        if self.position is not None:
            self.at = f"{self.name}_at"
            kind = counted(writer)
            writer.line(f"{self.at} = tl.full({writer.shape()}, {LAST[kind]}, {kind})")

    def step(self, writer: Writer, axis: Axis) -> None:
        """One piece more, in the loop."""
        value, at = self.made.operands(writer, self.statement.value, self.position, axis)
        if at:
            writer.line(f"{self.name}, {self.at} = {self.made.combine}({self.name}, {self.at}, {value}, {at})")
        else:
            writer.line(f"{self.name} = {self.made.combine}({self.name}, {value})")

    def results(self, writer: Writer, dim: int, keep: bool) -> list[tuple[Reduce | Accumulate, str]]:
        """Lines that reduce the tile along a dimension; the variable of the result."""
        return [(self.statement, self.made.finish(writer, self.name, self.at, dim, keep))]
