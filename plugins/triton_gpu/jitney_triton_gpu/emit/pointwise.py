"""Kernels without reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from jitney_lowering.index import Compound, Index, Opaque, Var, product, usual_step
from jitney_lowering.ir import (
    Kernel,
    Load,
    Nest,
    Position,
    Put,
    Scatter,
    Statement,
    Store,
    Value,
    walk,
)
from jitney_triton_gpu import tiles
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.emit.function import Draft, blocks_of
from jitney_triton_gpu.emit.indices import fastest, places, work
from jitney_triton_gpu.emit.runs import load_runs, store_runs
from jitney_triton_gpu.emit.spaces import Axis
from jitney_triton_gpu.emit.writer import Register

NOTHING: Mapping[str, str] = MappingProxyType({})
WIDEST_LOAD = 8  # elements that are loaded at once, at most


def pointwise(
    kernel: Kernel,
    name: str,
    wide: bool,
    tuning: tiles.Tuning = tiles.USUAL,
    replaced: Mapping[str, str] = NOTHING,
) -> Code:
    """One program for each block of elements; of two axes where memory is read along one and written along another,
    and where rows are picked.

    Args:
        kernel: of one nest without reductions.
        name: of the function.
        wide: count places in 64 bits.
        tuning: other block sizes than the usual ones.
        replaced: buffers in whose memory the kernel stores something else -> the name of that.
    """
    (nest,) = kernel.body
    loops = (*kernel.outer, *nest.loops)
    inner = loops[-1:] if loops else ()
    other = _other_axis(kernel, loops)
    if other is not None:
        tile = tuning.tile(tiles.transposing(inner[0].size.value, other.size.value))
        rest = tuple(v for v in loops[:-1] if v is not other)
        x, y, z = Axis("x", inner, tile.x), Axis("y", (other,), tile.r), Axis("z", rest, 1)
        draft = Draft(kernel, name, [y, x], wide)
        across = draft.writer.index(blocks_of(x.count, x.block))
        draft.writer.enter([x, y, z])
        draft.writer.line("program = tl.program_id(0)")
        draft.axis(x, f"program % {across} * {x.symbol}", "[None, :]")
        down = draft.writer.index(blocks_of(y.count, y.block))
        draft.axis(y, f"program // {across} % {down} * {y.symbol}", "[:, None]")
        draft.axis(z, f"program // {across} // {down}", None)
        programs = blocks_of(x.count, x.block) * blocks_of(y.count, y.block) * z.count
    elif _has_rows(kernel, loops):
        strided = _is_strided(kernel, inner)
        length = loops[-1].size.value or 1
        tile = tuning.tile(tiles.long_rows(length, len(kernel.buffers), work(nest.statements), strided=strided))
        x, z = Axis("x", inner, tile.x), Axis("z", loops[:-1], 1)
        draft = Draft(kernel, name, [x], wide)
        across = draft.writer.index(blocks_of(x.count, x.block))
        draft.writer.enter([z])
        draft.writer.line("program = tl.program_id(0)")
        draft.axis(z, f"program // {across}", None)
        programs = blocks_of(x.count, x.block) * z.count
        if not x.fits and (x.count.value or 0) % WIDEST_LOAD:  # masks would be asked for each element
            draft.writer.line(f"first = program % {across} * {x.symbol}")
            for axis, header in ((replace(x, full=True), f"if first + {x.symbol} <= {x.count}:"), (x, "else:")):
                draft.writer.tile = [axis]
                draft.writer.enter([axis], header)
                draft.axis(axis, "first")
                _store(draft, nest.statements)
                draft.writer.leave()
            return Code((draft.finished(programs, tile.warps),))
        draft.writer.enter([x])
        draft.axis(x, f"program % {across} * {x.symbol}")
    elif rows := picked_rows(nest, loops):
        tile = replace(tuning, x=0).tile(tiles.picked_rows(product(loops[:-1]).value, loops[-1].size.value or 1))
        x, y = Axis("x", inner, tile.x), Axis("y", loops[:-1], tile.r)
        draft = Draft(kernel, name, [y, x], wide)
        known = _looked_up(draft, rows, replace(y, name="i"))
        draft.writer.enter([y])
        draft.axis(y, f"tl.program_id(0) * {y.symbol}", "[:, None]")
        for value, number in known.items():
            draft.writer.know(value, Register(f"{number}[:, None]", frozenset({y.name})))
        draft.writer.enter([x])
        draft.axis(x, "0", "[None, :]")
        programs = blocks_of(y.count, y.block)
    elif len(parts := independent(nest, replaced)) > 1:
        return _side_by_side(kernel, parts, loops, name, wide, tuning)
    else:
        strided = _is_strided(kernel, inner)
        tile = tiles.pointwise(product(loops).value, len(kernel.buffers), work(nest.statements), strided=strided)
        tile = tuning.tile(tile)
        x = Axis("x", loops, tile.x)
        draft = Draft(kernel, name, [x], wide)
        draft.writer.enter([x])
        draft.axis(x, f"tl.program_id(0) * {x.symbol}")
        programs = blocks_of(x.count, x.block)
    _store(draft, nest.statements)
    return Code((draft.finished(programs, tile.warps),))


def _other_axis(kernel: Kernel, loops: Sequence[Var]) -> Var | None:
    """The loop besides the last one along which some memory lies, if both are needed to go along all of it."""
    if not loops:
        return None
    whole = [p for p in places(kernel) if len(p.atoms.intersection(loops)) == len(loops)]
    across = [p for p in whole if usual_step(p, loops[-1]) != 1]
    counts = fastest(across, loops[:-1])
    other = max(loops[:-1], key=lambda v: counts[v], default=None)
    return other if other is not None and counts[other] and len(across) < len(whole) else None


def independent(nest: Nest, replaced: Mapping[str, str]) -> list[list[Store]]:
    """The stores of a nest, those together that have memory in common: such parts may run in any order.

    ``replaced``: see ``pointwise``.
    """
    before: dict[str, set[str]] = {}
    for old, new in replaced.items():
        before.setdefault(new, set()).add(old)
    stores = [s for s in nest.statements if isinstance(s, Store)]
    if len(stores) < len(nest.statements):
        return [stores]
    found: list[tuple[set[str], list[Store]]] = []
    for s in stores:
        if any(isinstance(atom, Opaque) for atom in s.index.atoms):
            return [stores]
        buffers, together = _read(s) | {s.buffer} | before.get(s.buffer, set()), [s]
        apart = []
        for others, held in found:
            if others & buffers:
                buffers, together = buffers | others, held + together
            else:
                apart.append((others, held))
        found = [*apart, (buffers, together)]
    return [held for _, held in found]


def _read(s: Statement) -> set[str]:
    return {v.buffer for v in walk(s.value) if isinstance(v, Load)}


def _side_by_side(
    kernel: Kernel,
    parts: Sequence[Sequence[Store]],
    loops: tuple[Var, ...],
    name: str,
    wide: bool,
    tuning: tiles.Tuning,
) -> Code:
    """Programs of their own for each part: one that reads and writes few buffers has memory go through in order."""
    count = product(loops)
    buffers = max(len(set().union(*map(_read, part))) + len(part) for part in parts)
    elements = None if count.value is None else count.value * len(parts)
    tile = tuning.tile(tiles.pointwise(elements, buffers, max(map(work, parts))))
    x = Axis("x", loops, tile.x)
    draft = Draft(kernel, name, [x], wide)
    writer = draft.writer
    blocks = blocks_of(x.count, x.block)
    writer.line("program = tl.program_id(0)")
    writer.line(f"part = program // {writer.index(blocks)}")
    lines: list[str] = []  # what all parts need is written before them
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        writer.enter([x], "else:" if last else f"{'el' if number else ''}if part == {number}:")
        draft.axis(x, f"program % {writer.index(blocks)} * {x.symbol}")
        _store(draft, part)
        lines += writer.leave_aside()
    writer.sections[-1].lines += lines
    return Code((draft.finished(blocks * len(parts), tile.warps),))


def _store(draft: Draft, statements: Sequence[Statement]) -> None:
    """All values first, then what is stored of them."""
    writer = draft.writer
    load_runs(writer, statements)
    registers = {s: writer.value(s.value) for s in statements if isinstance(s, Store)}
    for s in store_runs(writer, registers):
        writer.store_register(s.buffer, s.index, registers[s])
    for scatter in statements:
        if isinstance(scatter, Scatter):
            writer.put(scatter.value)


def picked_rows(nest: Nest, loops: tuple[Var, ...]) -> list[Value]:
    """The computed indices that pick short rows: each is looked up once then, and not for each element."""
    if len(loops) < 2 or loops[-1].size.value is None or not tiles.is_row(loops[-1].size.value):
        return []
    picked = [v for s in nest.statements for v in walk(s.value) if isinstance(v, (Load, Put)) and v.indirect]
    rows = [
        v for v in picked
        if loops[-1] in v.index.atoms and not any(_varies(value, loops[-1]) for _, value in v.indirect)
    ]  # fmt: skip
    found = [value for v in rows for _, value in v.indirect]
    found += [v.mask for v in rows if v.mask is not None and not _varies(v.mask, loops[-1])]
    return list(dict.fromkeys(found))


def _looked_up(draft: Draft, indices: Sequence[Value], axis: Axis) -> dict[Value, str]:
    """Names of computed indices, a vector of which is held by the threads that need them: not so one of columns."""
    writer = draft.writer
    tile, writer.tile = writer.tile, [axis]
    writer.enter([axis])
    draft.axis(axis, f"tl.program_id(0) * {axis.symbol}")
    found = {value: writer.value(value) for value in indices}
    writer.leave()
    writer.tile = tile
    return {value: register.name for value, register in found.items() if register.axes}


def _varies(value: Value, loop: Var) -> bool:
    """Does it change along a loop?"""
    return any(isinstance(v, (Load, Position)) and loop in v.index.atoms for v in walk(value))


def _is_strided(kernel: Kernel, inner: Sequence[Var]) -> bool:
    """Do several accesses go through memory in steps of a few elements along the innermost loop, or begin beside what
    a thread loads at once, as those of a stencil do?
    """
    found = set(places(kernel))
    steps = [place.stride(v) for place in found for v in inner]
    if sum(step is not None and (step.value or 0) > 1 for step in steps) > 1:
        return True
    return sum(_is_beside(place, v) for place in found for v in inner if v in place.atoms) > 1


def _is_beside(place: Index, var: Var) -> bool:
    """Is it moved along a loop by less than a thread loads at once?"""
    moved = [place] + [f.a for _, term in place.terms for f in term if isinstance(f, Compound) and var in f.a.atoms]
    return any(x.constant % tiles.VECTOR for x in moved)


def _has_rows(kernel: Kernel, loops: tuple[Var, ...]) -> bool:
    """Is there something to load that is the same for a long row?"""
    if len(loops) < 2 or loops[-1].size.value is None or not tiles.is_long(loops[-1].size.value):
        return False
    loaded = [v.index for s in kernel.body[0].statements for v in walk(s.value) if isinstance(v, Load)]
    return any(loops[-1] not in place.atoms for place in loaded)
