"""Kernels that reduce within rows, and have nothing that concerns several rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from jitney_lowering import NotLowered
from jitney_lowering.index import min_, product, usual_step
from jitney_lowering.ir import (
    SORT,
    Accumulate,
    Kernel,
    Load,
    Nest,
    Reduce,
    Scan,
    Scatter,
    Scratch,
    Store,
    Value,
    ref,
    walk,
)
from jitney_triton_gpu import tiles
from jitney_triton_gpu.code import Code, Workspace
from jitney_triton_gpu.emit.direction import is_backwards
from jitney_triton_gpu.emit.function import Draft, blocks_of
from jitney_triton_gpu.emit.indices import fastest, places, registers, shared_by_rows, widest, work
from jitney_triton_gpu.emit.neighbours import Neighbours
from jitney_triton_gpu.emit.online import Online, softmax_sums
from jitney_triton_gpu.emit.reduce import Reduction, Running
from jitney_triton_gpu.emit.scan import Prefix
from jitney_triton_gpu.emit.scratch import homes as scratch_homes
from jitney_triton_gpu.emit.spaces import Arrangement, Axis
from jitney_triton_gpu.emit.writer import Register


def rows(
    kernel: Kernel, name: str, wide: bool, replaced: Mapping[str, str], tuning: tiles.Tuning = tiles.USUAL
) -> Code:
    """One program for some rows; ``replaced``: see ``emit``."""
    lengths = [product(nest.loops).value for nest in kernel.body if nest.loops]
    length = max((n for n in lengths if n is not None), default=1) if None not in lengths else None
    statements = [s for nest in kernel.body for s in nest.statements]
    across, sorts = is_across(kernel), any(isinstance(s, Scan) and s.kind == SORT for s in statements)
    positions = any(isinstance(s, Reduce) and s.position is not None for s in statements)
    plain = not kernel.scratch and all(isinstance(s, (Reduce, Store, Scatter)) for s in statements)
    usual = tiles.rows(
        product(kernel.outer).value,
        length,
        across,
        positions=positions,
        work=work(statements),
        shared=shared_by_rows(statements, kernel.outer) if plain else 0.0,
        held=max(registers(nest.statements) for nest in kernel.body),
    )
    if plain and not across and is_narrow(kernel):
        usual = tiles.narrow_rows(product(kernel.outer).value, length) or usual
    if length is not None and sorts:
        usual = tiles.sorted_rows(product(kernel.outer).value, length, across)
    tile = tuning.tile(usual)
    x = Axis("x", kernel.outer, tile.x)
    arrangement = Arrangement(x.block > 1, across and not sorts)  # what is sorted is last
    kept = in_registers(kernel) if tile.whole else {}
    scratch = [s for s in kernel.scratch if s.name not in kept]
    homes = scratch_homes(kernel, scratch)
    workspaces = [Workspace(s.name, s.dtype, s.extent * x.count) for s in scratch if homes[s.name] == s.name]
    draft = Draft(kernel, name, [], wide, workspaces)
    programs = blocks_of(x.count, x.block)
    few = None if tile.whole or x.block > 1 else tiles.rows_at_a_time(row_bytes(kernel, length))
    if few is not None:  # so few rows at a time that the second look at one finds it in the cache
        programs = min_(programs, few)
        draft.writer.enter([x], f"for x in range(tl.program_id(0), {draft.writer.index(x.count)}, tl.num_programs(0)):")
        if wide:
            draft.writer.line("x = tl.full([], 0, tl.int64) + x")
    else:
        draft.writer.enter([x])
        draft.axis(x, f"tl.program_id(0){f' * {x.symbol}' if x.block > 1 else ''}", arrangement.of_rows)
    body = Rows(draft, x, tile.r if not tile.whole else 0, kept, replaced, tile.stages, arrangement)
    body.begin_scratch(scratch, homes, x.name)
    sums = {} if tile.whole else softmax_sums(kernel.body)
    for number, nest in enumerate(kernel.body):
        if number not in sums.values():
            body.nest(nest, kernel.body[sums[number]] if number in sums else None)
    return Code((draft.finished(programs, tile.warps),), tuple(workspaces))


def in_registers(kernel: Kernel) -> dict[str, list[Load]]:
    """Scratch memory that a row which is in registers as a whole needs no memory for -> what is read of it.

    It is filled once, and read where it was written.
    """
    statements = [s for nest in kernel.body for s in nest.statements]
    stores = {s.buffer: s for s in statements if isinstance(s, Store)}
    adds = {s.buffer for s in statements if isinstance(s, Accumulate)}
    found: dict[str, list[Load]] = {s.name: [] for s in kernel.scratch if s.name in stores and s.name not in adds}
    for load in {v for s in statements for v in walk(s.value) if isinstance(v, Load)}:
        if load.buffer in found and load.mask is None and load.index is stores[load.buffer].index:
            found[load.buffer].append(load)
        else:
            found.pop(load.buffer, None)
    return found


def row_bytes(kernel: Kernel, length: int | None) -> int:
    """About how much memory a row reads more than once."""
    times: dict[str, int] = {}
    for nest in kernel.body:
        loads = {v for s in nest.statements for v in walk(s.value) if isinstance(v, Load)}
        for name in {v.buffer for v in loads if any(var in v.index.atoms for var in nest.loops)}:
            times[name] = times.get(name, 0) + 1
    again = [name for name, count in times.items() if count > 1 and name in kernel.buffers]
    return (length or tiles.GUESS) * sum(kernel.buffers[name].itemsize for name in again)


def is_across(kernel: Kernel) -> bool:
    """Does memory go on from row to row rather than within a row? What a row has one of does not count.

    So it does where computed indices pick rows of memory: there are fewer of these than there are elements.
    """
    loads = [v for nest in kernel.body for s in nest.statements for v in walk(s.value) if isinstance(v, Load)]
    if any(v.indirect and any(v.index.stride(var) == 1 for var in kernel.outer) for v in loads):
        return True
    inner = {v for nest in kernel.body for v in nest.loops}
    large = widest(place for place in places(kernel) if any(v in place.atoms for v in inner))
    counts = fastest(large, (*kernel.outer, *inner))
    return sum(counts[v] for v in kernel.outer) > sum(counts[v] for v in inner)


def is_narrow(kernel: Kernel) -> bool:
    """Is a row gone through once, for sums over it, and are bytes all that is loaded for its elements alone?"""
    nests = [nest for nest in kernel.body if nest.loops]
    if len(nests) != 1 or any(isinstance(s, Store) for s in nests[0].statements):
        return False
    loads = {v for s in nests[0].statements for v in walk(s.value) if isinstance(v, Load)}
    own = [v for v in loads if any(var in v.index.atoms for var in kernel.outer)]
    own = [v for v in own if any(usual_step(v.index, var) != 0 for var in nests[0].loops)]
    return bool(own) and all(v.dtype.itemsize == 1 for v in own)


class Rows:
    """The nests of a row, one after the other.

    Args:
        draft: the function, in a section in which the rows' axis is known.
        x: that axis; rows one by one if its block is 1.
        piece: how much of a row at a time; 0 for all of it.
        kept: scratch memory that is registers; see ``in_registers``.
        replaced: see ``emit``.
        stages: how many pieces are on their way at a time; 0: as usual.
        arrangement: of the tiles; if not given, rows lie along the first dimension.
    """

    def __init__(
        self,
        draft: Draft,
        x: Axis,
        piece: int,
        kept: Mapping[str, Sequence[Load]],
        replaced: Mapping[str, str],
        stages: int = 0,
        arrangement: Arrangement | None = None,
    ) -> None:
        self.draft = draft
        self.arrangement = arrangement or Arrangement(x.block > 1)
        self.writer = draft.writer
        self.x = x
        self.piece = piece
        self.kept = kept
        self.replaced = replaced
        self.stages = stages
        self.axes: dict[tuple[object, ...], Axis] = {}
        self.starts: dict[str, str] = {}  # of the axes' blocks
        self.stored: set[str] = set()  # by the nests so far
        self.loaded: set[str] = set()
        self.inherited: set[str] = set()  # scratch memory in which something else was before

    def begin_scratch(self, scratch: Sequence[Scratch], homes: Mapping[str, str], row: str) -> None:
        """Where this program's part of workspaces begins.

        Args:
            scratch: what is in workspaces.
            homes: see ``scratch.homes``.
            row: the text of a row's number in them.
        """
        for s in scratch:
            if homes[s.name] == s.name:
                base = self.writer.name("s")
                self.writer.line(f"{base} = {s.name} + ({row}) * {self.writer.index(s.extent)}")
                self.writer.bases[s.name] = Register(base, frozenset({self.x.name}))
        for s in scratch:
            self.writer.bases[s.name] = self.writer.bases[homes[s.name]]
        self.inherited = {name for name, home in homes.items() if name != home}

    @property
    def tiled(self) -> bool:
        """Are there several rows in a tile?"""
        return self.arrangement.tiled

    def nest(self, nest: Nest, total: Nest | None = None) -> None:
        """One nest, whole or piece by piece; ``total``: what goes with it, see ``online.py``."""
        loads = {v.buffer for s in nest.statements for v in walk(s.value) if isinstance(v, Load)}
        stores = {s.buffer for s in nest.statements if isinstance(s, (Accumulate, Store))}
        ended = {old for old, new in self.replaced.items() if new in stores}  # other threads may be reading it still
        if loads & self.stored or stores & self.inherited or ended & self.loaded:
            self.writer.line("tl.debug_barrier()")
        if not nest.loops:
            self.writer.tile = [self.x] if self.tiled else []
            self._once(nest)
        elif not self.piece:
            self.whole_axis(nest)
            self._whole(nest)
        else:
            self._pieces(nest, total)
        self.stored |= {s.buffer for s in nest.statements if isinstance(s, Store)}
        self.loaded |= loads

    def whole_axis(self, nest: Nest) -> Axis:
        """The axis of a nest's loops, all of them in one block; the next lines are about a tile with it."""
        axis = self.axes.get(nest.loops)
        if axis is None:
            count = product(nest.loops).value
            assert count is not None
            axis = self._axis(nest, tiles.power(count))
            self.writer.enter([axis])
            self._begin(axis, "0")
        self._turn(axis)
        return axis

    def _axis(self, nest: Nest, block: int) -> Axis:
        if nest.loops not in self.axes:
            self.axes[nest.loops] = Axis(f"r{len(self.axes) or ''}", nest.loops, block)
        return self.axes[nest.loops]

    def _begin(self, axis: Axis, start: str) -> None:
        self.starts[axis.name] = start
        self.draft.axis(axis, start, self.arrangement.of_elements)

    def _turn(self, axis: Axis) -> None:
        self.writer.tile = self.arrangement.tile(self.x, axis)

    def _once(self, nest: Nest) -> None:
        for s in nest.statements:
            if isinstance(s, Reduce):  # of one value: itself, at position 0
                held = self.writer.value(s.value)
                if s.position is not None:
                    held = Register(self.writer.name("c"), frozenset())
                    self.writer.line(f"{held.name} = tl.full([], 0, tl.int64)")
                self.writer.know(ref(s.name, s.dtype), held)
        self.store(nest)

    def _whole(self, nest: Nest) -> None:
        axis = self.axes[nest.loops]
        pairs = self._values(nest, axis, self._scans(nest, pieces=False))
        extremes: dict[tuple[str, Value], str] = {}
        for s in sorted((s for s in nest.statements if isinstance(s, Reduce)), key=lambda s: s.position is not None):
            made = Reduction(s.kind, s.value.dtype)
            value, at = made.operands(self.writer, s.value, s.position, axis)
            best = extremes.get((s.kind.removeprefix("arg"), s.value), "") if at else ""
            name = self.end(s, made, value, at, best)
            if s.value.dtype is not torch.bool:  # which is held as a number
                extremes[s.kind, s.value] = name
        self.store(nest, pairs)

    def _pieces(self, nest: Nest, total: Nest | None) -> None:
        writer = self.writer
        axis = self._axis(nest, min(self.piece, tiles.power(product(nest.loops).value or self.piece)))
        self.draft.blocks[axis.symbol] = axis.block
        self._turn(axis)
        reductions = [s for s in (*nest.statements, *(total.statements if total else ())) if isinstance(s, Reduce)]
        running: list[Running | Online] = [Running(writer, s) for s in reductions] if total is None else []
        if total is not None:
            running.append(Online(writer, *reductions))
        scans = self._scans(nest, pieces=True)
        if is_backwards(nest):
            self._pieces_from_the_end(nest, axis, running, scans)
            return
        start, count = f"{axis.name}_start", axis.count.value
        end = writer.index(axis.count)
        if count is None or axis.fits:
            header = f"for {start} in {tiles.loop('rows', '0', end, axis.symbol, self.stages)}:"
            self._piece(nest, axis, running, scans, header, start)
        else:  # what is full needs no mask, which would have to be asked for each element
            done = count // axis.block * axis.block
            if done:
                full = replace(axis, full=True)
                header = f"for {start} in {tiles.loop('rows', '0', str(done), axis.symbol, self.stages)}:"
                self._piece(nest, full, running, scans, header, start)
            self._piece(nest, axis, running, scans, "", str(done))
        self._end_all(running)

    def _pieces_from_the_end(
        self, nest: Nest, axis: Axis, running: Sequence[Running | Online], scans: Mapping[str, Prefix]
    ) -> None:
        """The last piece, perhaps not full, comes first."""
        pieces = self.writer.index(blocks_of(axis.count, axis.block))
        header = f"for piece in {tiles.loop('rows', '0', pieces)}:"
        self._piece(nest, axis, running, scans, header, f"({pieces} - 1 - piece) * {axis.symbol}")
        self._end_all(running)

    def _end_all(self, running: Sequence[Running | Online]) -> None:
        for one in running:
            for s, name in one.results(self.writer, self.arrangement.reduced, self.tiled):
                assert isinstance(s, Reduce)
                self.writer.know(ref(s.name, s.dtype), Register(name, frozenset({self.x.name})))

    def _scans(self, nest: Nest, *, pieces: bool) -> dict[str, Prefix]:
        scans = [s for s in nest.statements if isinstance(s, Scan)]
        return {s.name: Prefix(self.writer, s, self.arrangement, pieces) for s in scans}

    def _values(self, nest: Nest, axis: Axis, scans: Mapping[str, Prefix]) -> Neighbours:
        """The values of all statements in order, each scan before those that read it."""
        pairs = Neighbours(self.writer, nest, axis, self.starts[axis.name])
        pairs.load()
        for s in nest.statements:
            if isinstance(s, Scan):
                scans[s.name].step(self.writer, axis)
            elif not isinstance(s, Scatter):
                self.writer.value(s.value)
        return pairs

    def _piece(
        self,
        nest: Nest,
        axis: Axis,
        running: Sequence[Running | Online],
        scans: Mapping[str, Prefix],
        header: str,
        start: str,
    ) -> None:
        writer = self.writer
        self._turn(axis)
        writer.enter([axis], header)
        self._begin(axis, start)
        pairs = self._values(nest, axis, scans)
        for one in running:
            one.step(writer, axis)
        self.store(nest, pairs)
        writer.leave()
        self._turn(axis)

    def end(self, s: Reduce, made: Reduction, value: str, at: str, best: str = "") -> str:
        """A tile reduced to one register for each row: its name."""
        name = made.finish(self.writer, value, at, self.arrangement.reduced, self.tiled, best)
        self.writer.know(ref(s.name, s.dtype), Register(name, frozenset({self.x.name})))
        return name

    def store(self, nest: Nest, pairs: Neighbours | None = None) -> None:
        """All values first, then what is stored of them; ``pairs``: of a nest with loops."""
        if any(isinstance(s, Accumulate) for s in nest.statements):
            raise NotLowered("a reduction of several results for each row")
        stores = [s for s in nest.statements if isinstance(s, Store)]
        registers = {s: self.writer.value(s.value) for s in stores}
        outside = {s: register for s, register in registers.items() if s.buffer not in self.kept}
        paired = set(outside).difference(pairs.store(outside)) if pairs is not None else set()
        for s, register in registers.items():
            if s not in paired:
                self.store_one(s, register)
        for scatter in nest.statements:
            if isinstance(scatter, Scatter):
                self.writer.put(scatter.value)

    def store_one(self, s: Store, register: Register) -> None:
        """To memory, or as the register that later nests use."""
        if s.buffer not in self.kept:
            self.writer.store_register(s.buffer, s.index, register)
        for load in self.kept.get(s.buffer, ()):
            self.writer.know(load, register)
