"""Rows with something reduced over all of them, such as the backward of a layer norm with the gradients of its weights.

Each program goes over many rows and has accumulators of its own: in registers where an element of a row has one place
for all rows, in a workspace elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jitney_lowering import NotLowered
from jitney_lowering.index import Index, Var, index, product, tells_apart
from jitney_lowering.ir import Accumulate, Kernel, Load, Nest, Store, identity, walk
from jitney_triton_gpu import tiles
from jitney_triton_gpu.code import Code, Workspace
from jitney_triton_gpu.emit.finish import Part, finish
from jitney_triton_gpu.emit.function import Draft
from jitney_triton_gpu.emit.neighbours import Neighbours
from jitney_triton_gpu.emit.rows import Rows, in_registers
from jitney_triton_gpu.emit.scratch import homes as scratch_homes
from jitney_triton_gpu.emit.spaces import Axis
from jitney_triton_gpu.emit.writer import Register


def sweep(
    kernel: Kernel, name: str, wide: bool, replaced: Mapping[str, str], tuning: tiles.Tuning = tiles.USUAL
) -> Code:
    """A program for some rows, one after the other; a second function puts the programs' results together.

    ``replaced``: see ``emit``.
    """
    lengths = [product(nest.loops).value for nest in kernel.body if nest.loops]
    known = [n for n in lengths if n is not None]
    whole = len(known) == len(lengths) and max(known, default=1) <= tiles.LONGEST_ROW
    length = max(known, default=1) if whole else tiles.GUESS
    tile, programs = tiles.sweeps(product(kernel.outer).value, length, _read(kernel))
    tile, programs = tuning.tile(tile), tuning.count(programs)
    accumulates = [s for nest in kernel.body for s in nest.statements if isinstance(s, Accumulate)]
    parts = {s.buffer: Part.of(kernel, s, programs) for s in accumulates}
    workspaces = [w for part in parts.values() for w in part.workspaces]
    together = whole and not any(_varies(s.index, kernel.outer) for s in accumulates)
    x = Axis("x", kernel.outer, tile.x if together else 1)
    kept = in_registers(kernel) if whole else {}
    scratch = [s for s in kernel.scratch if s.name not in kept]
    homes = scratch_homes(kernel, scratch)
    own = [s for s in scratch if homes[s.name] == s.name]
    workspaces += [Workspace(s.name, s.dtype, s.extent * (programs * x.block)) for s in own]
    draft = Draft(kernel, name, [], wide, workspaces)
    writer = draft.writer
    body = Sweep(draft, x, 0 if whole else tile.r, kept, replaced, parts)
    body.begin()
    count = writer.index(x.count)
    each = programs * x.block
    writer.line(f"rows = ({count} + {each - 1}) // {each}{f' * {x.symbol}' if body.tiled else ''}")
    writer.line("first = program * rows")
    end = f"tl.minimum(first + rows, {count})"
    if body.tiled:
        writer.enter([x], f"for x_start in {tiles.loop('sweep', 'first', end, x.symbol, tile.stages)}:")
        draft.axis(x, "x_start", "[:, None]")
    else:
        writer.enter([x], f"for x in {tiles.loop('sweep', 'first', end, stages=tile.stages)}:")
        if wide:
            writer.line("x = tl.full([], 0, tl.int64) + x")
    lane = f" * {x.symbol} + tl.arange(0, {x.symbol})[:, None]" if body.tiled else ""
    body.begin_scratch(scratch, homes, f"program{lane}")
    if scratch:  # what the row before has left there, some threads may be reading
        writer.line("tl.debug_barrier()")
    for nest in kernel.body:
        body.nest(nest)
    while len(writer.sections) > body.outside:
        writer.leave()
    body.leave_behind(kernel)
    function = draft.finished(index(programs), tile.warps)
    return Code((function, *finish(kernel, list(parts.values()), name, wide)), tuple(workspaces))


def _read(kernel: Kernel) -> int:
    """Bytes of an element of a row that are loaded from buffers."""
    loads = {v for nest in kernel.body for s in nest.statements for v in walk(s.value) if isinstance(v, Load)}
    within = [v for v in loads if any(_varies(v.index, nest.loops) for nest in kernel.body)]
    return sum(v.dtype.itemsize for v in within if v.buffer in kernel.buffers)


def _varies(place: Index, loops: tuple[Var, ...]) -> bool:
    return any(v in place.atoms for v in loops)


@dataclass
class Held:
    """An accumulator in registers: its variable, and the axis along which it differs."""

    name: str
    axis: Axis | None


class Sweep(Rows):
    """The nests of a row, and what is reduced over rows."""

    def __init__(
        self,
        draft: Draft,
        x: Axis,
        piece: int,
        kept: Mapping[str, Sequence[Load]],
        replaced: Mapping[str, str],
        parts: dict[str, Part],
    ) -> None:
        super().__init__(draft, x, piece, kept, replaced)
        self.parts = parts
        self.held: dict[str, Held] = {}
        self.outside = 0

    def begin(self) -> None:
        """Before the rows: the axes of rows that are whole, and accumulators."""
        writer = self.writer
        writer.line("program = tl.program_id(0)")
        if not self.piece:
            for nest in self.draft.kernel.body:
                if nest.loops:
                    self.whole_axis(nest)
        for nest in self.draft.kernel.body:
            for s in nest.statements:
                if isinstance(s, Accumulate):
                    self._begin_one(s, nest)
        self.outside = len(writer.sections)

    def _begin_one(self, s: Accumulate, nest: Nest) -> None:
        writer, part = self.writer, self.parts[s.buffer]
        if s.buffer not in self.held and not _varies(s.index, self.x.loops) and not (self.piece and nest.loops):
            axis = self.axes[nest.loops] if _varies(s.index, nest.loops) else None
            name = writer.name("a")
            self.draft.blocks[self.x.symbol] = self.x.block
            shape = ([self.x.symbol] if self.tiled else []) + ([axis.symbol] if axis else ["1"] if self.tiled else [])
            start = f"tl.broadcast_to({part.made.start}, [{', '.join(shape)}])" if shape else part.made.start
            writer.line(f"{name} = {start}")
            self.held[s.buffer] = Held(name, axis)
            return
        base = writer.name("w")
        extent = writer.index(part.extent)
        writer.line(f"{base} = {part.name} + program * {extent}")
        begin = identity(part.made.kind, part.made.dtype)
        shown = f"float('{begin}')" if begin in (float("inf"), -float("inf")) else repr(begin)
        writer.line(f"for at in range(0, {extent}, 1024):")
        writer.line("    places = at + tl.arange(0, 1024)")
        writer.line(f"    tl.store({base} + places, {shown}, places < {extent})")
        writer.bases[s.buffer] = Register(base, frozenset())

    def store(self, nest: Nest, pairs: Neighbours | None = None) -> None:
        """All values first; then what is stored, one by one, and accumulated."""
        writer = self.writer
        statements = [s for s in nest.statements if isinstance(s, (Store, Accumulate))]
        registers = [writer.value(s.value) for s in statements]
        for s, register in zip(statements, registers, strict=True):
            if isinstance(s, Store):
                self.store_one(s, register)
            else:
                self._accumulate(s, register, nest)

    def _accumulate(self, s: Accumulate, register: Register, nest: Nest) -> None:
        writer, made = self.writer, self.parts[s.buffer].made
        value = made.taken(register.name)
        axis = writer.tile[-1] if nest.loops else None  # of this piece: one that is full has no mask
        if _varies(s.index, nest.loops) and not tells_apart(s.index, nest.loops):
            raise NotLowered("several elements of a row that are accumulated in one place, and others elsewhere")
        if axis is not None and not _varies(s.index, nest.loops):  # all of the row to one place
            value = made.taken(writer.spread(register))
            if not axis.fits:
                value = f"tl.where({axis.name}_ok, {value}, {made.start})"
            value = made.along(value, 1 if self.tiled else 0, self.tiled)
        held = self.held.get(s.buffer)
        if held is not None:
            if held.axis is not None:
                value = writer.spread(Register(value, register.axes))
            if not self.x.fits:
                value = f"tl.where({self.x.name}_ok, {value}, {made.start})"
            writer.line(f"{held.name} = {made.combine}({held.name}, {value})")
            return
        address, axes = writer.address(s.buffer, s.index)
        mask = writer.mask(axes - {self.x.name})
        ending = f", {mask}" if mask else ""
        old = writer.name("o")
        shown = f"tl.load({address}{ending})"
        shown = made.taken(shown)
        writer.line("tl.debug_barrier()")
        writer.line(f"{old} = {shown}")
        writer.line("tl.debug_barrier()")
        writer.line(f"tl.store({address}, {made.given(f'{made.combine}({old}, {value})')}{ending})")

    def leave_behind(self, kernel: Kernel) -> None:
        """After the rows: accumulators to the workspaces."""
        writer = self.writer
        for nest in kernel.body:
            for s in nest.statements:
                held = self.held.get(s.buffer) if isinstance(s, Accumulate) else None
                if held is None or not isinstance(s, Accumulate):
                    continue
                part = self.parts[s.buffer]
                mask = writer.mask(frozenset({held.axis.name})) if held.axis else ""
                at = f"program * {writer.index(part.extent)} + {writer.index(s.index)}"
                value = part.made.along(held.name, 0, keep=True) if self.tiled else held.name
                value = part.made.given(value)
                address = f"{part.name} + {at}"
                if self.tiled and held.axis is None:
                    address = f"tl.broadcast_to({address}, [1, 1])"
                writer.line(f"tl.store({address}, {value}{f', {mask}' if mask else ''})")
