"""Partial results put together: the second function of kernels whose reductions several programs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from jitney_lowering.index import Index, Var, index, product
from jitney_lowering.ir import HALVES, Accumulate, Kernel, Load, Nest, Reduce, Ref, Store, Value, ref, walk
from jitney_triton_gpu import tiles
from jitney_triton_gpu.code import Function, Workspace
from jitney_triton_gpu.emit.function import Draft, blocks_of
from jitney_triton_gpu.emit.reduce import LAST, Reduction
from jitney_triton_gpu.emit.spaces import Axis
from jitney_triton_gpu.emit.writer import Register


@dataclass(frozen=True)
class Part:
    """Partial results of one reduction: ``many`` times ``extent`` elements in a workspace.

    Args:
        name: of the workspace.
        result: the kernel's name for it: a ``Partial``, or what a ``Reduce`` gives.
        made: the reduction.
        extent: results.
        many: partial results for each.
        positions: the workspace of their positions, for those that give positions.
    """

    name: str
    result: str
    made: Reduction
    extent: Index
    many: int
    positions: str = ""

    @classmethod
    def of_reduce(cls, s: Reduce, many: int) -> Part:
        """The only result of a kernel without rows."""
        positions = f"w_{s.name}_at" if s.position is not None else ""
        return cls(f"w_{s.name}", s.name, Reduction(s.kind, s.value.dtype), index(1), many, positions)

    @classmethod
    def of(cls, kernel: Kernel, s: Reduce | Accumulate, many: int) -> Part:
        """What a statement leaves behind."""
        if isinstance(s, Reduce):
            return cls.of_reduce(s, many)
        partial = next(p for p in kernel.partials if p.name == s.buffer)
        return cls(f"w_{s.buffer}", s.buffer, Reduction(s.kind, s.value.dtype), partial.extent, many)

    @property
    def workspaces(self) -> list[Workspace]:
        """The memory."""
        count = self.extent * self.many
        dtype = self.made.dtype
        held = [Workspace(self.name, torch.float32 if dtype in HALVES else dtype, count)]
        return held + ([Workspace(self.positions, torch.int64, count)] if self.positions else [])


def finish(kernel: Kernel, parts: Sequence[Part], name: str, wide: bool) -> list[Function]:
    """The functions that run when all parts are there: one for the nests over equal ranges."""
    groups: dict[tuple[Index, ...], list[Nest]] = {}
    for nest in kernel.finish:
        groups.setdefault(tuple(v.size for v in nest.loops), []).append(nest)
    return [
        _function(kernel, nests, parts, f"{name}_finish{number or ''}", wide)
        for number, nests in enumerate(groups.values())
    ]


def _function(kernel: Kernel, nests: Sequence[Nest], parts: Sequence[Part], name: str, wide: bool) -> Function:
    loops = tuple(v for nest in nests for v in nest.loops)  # each nest has variables of its own, for the same numbers
    count = product(nests[0].loops)
    many = max(part.many for part in parts)
    tile = tiles.finishing(count.value, many)
    x = Shared("x", loops, tile.x, len(nests[0].loops))
    s = Axis("s", (Var("s", many),), tile.r)
    tiled = x.block > 1
    draft = Draft(kernel, name, [x, s] if tiled else [s], wide, [w for part in parts for w in part.workspaces])
    writer = draft.writer
    writer.enter([x])
    draft.axis(x, f"tl.program_id(0){f' * {x.symbol}' if tiled else ''}", "[:, None]" if tiled else None)
    writer.enter([s])
    draft.axis(s, "0", "[None, :]" if tiled else "")
    for nest in nests:
        for statement in nest.statements:
            for v in walk(statement.value):
                if isinstance(v, (Load, Ref)):
                    _take(draft, v, parts, x, s, tiled)
        stores = [st for st in nest.statements if isinstance(st, Store)]
        registers = [writer.value(st.value) for st in stores]
        for st, register in zip(stores, registers, strict=True):
            writer.store_register(st.buffer, st.index, register)
    return draft.finished(blocks_of(count, x.block), tile.warps)


class Shared(Axis):
    """An axis for several lists of loops over the same numbers."""

    def __init__(self, name: str, loops: tuple[Var, ...], block: int, each: int) -> None:
        super().__init__(name, loops, block)
        object.__setattr__(self, "each", each)

    each: int

    @property
    def count(self) -> Index:
        """How many iterations one list has."""
        return product(self.loops[: self.each])

    def list_of(self, var: Var) -> tuple[Var, ...]:
        """The list of loops that a variable is of."""
        first = self.loops.index(var) // self.each * self.each
        return self.loops[first : first + self.each]


def _take(draft: Draft, v: Value, parts: Sequence[Part], x: Axis, s: Axis, tiled: bool) -> None:
    """A result, from its parts."""
    wanted = v.buffer if isinstance(v, Load) else v.name if isinstance(v, Ref) else ""
    part = next((p for p in parts if p.result == wanted), None)
    if part is None:
        return
    writer = draft.writer
    place = v.index if isinstance(v, Load) else index(0)
    at = f"s * {writer.index(part.extent)} + {writer.index(place)}"
    mask = writer.mask(frozenset({x.name, s.name}))
    ending = f", {mask}" if mask else ""
    value, made = f"tl.load({part.name} + {at}{ending})", part.made
    if made.dtype is torch.bool:
        value = f"{value}.to(tl.int32)"
    value = writer.spread(Register(value, writer.axes_of(place) | {s.name}))
    if not s.fits:
        value = f"tl.where(s_ok, {value}, {made.start})"
    position = ""
    if part.positions:
        position = writer.spread(Register(f"tl.load({part.positions} + {at}{ending})", frozenset({s.name})))
        if not s.fits:
            position = f"tl.where(s_ok, {position}, {LAST['tl.int64']})"
    name = made.finish(writer, value, position, 1 if tiled else 0, tiled)
    writer.know(v if isinstance(v, Load) else ref(v.name, v.dtype), Register(name, frozenset({x.name})))  # type: ignore[attr-defined]
