"""Kernels without reductions."""

from __future__ import annotations

from dataclasses import replace

from jitney.lowering.index import Var
from jitney.lowering.kernel import Kernel, Nest, Store
from jitney.lowering.values import Load, walk
from jitney_triton_gpu import tiles
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.emit.function import Draft, blocks_of
from jitney_triton_gpu.emit.indices import fastest, places, product
from jitney_triton_gpu.emit.spaces import Axis

VECTOR = 8  # elements that are loaded at once, at most


def pointwise(kernel: Kernel, name: str, wide: bool, tuning: tiles.Tuning = tiles.USUAL) -> Code:
    """One program for each block of elements; of two axes where memory is read along one and written along another."""
    (nest,) = kernel.body
    loops = (*kernel.outer, *nest.loops)
    inner = loops[-1:] if loops else ()
    counts = fastest([p for p in places(kernel) if len(p.atoms.intersection(loops)) == len(loops)], loops)
    other = max((v for v in loops[:-1]), key=lambda v: counts[v], default=None)
    if other is not None and counts[other] and counts[inner[0]]:
        tile = tuning.tile(tiles.transposing())
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
        tile = tuning.tile(tiles.long_rows(loops[-1].size.value or 1))
        x, z = Axis("x", inner, tile.x), Axis("z", loops[:-1], 1)
        draft = Draft(kernel, name, [x], wide)
        across = draft.writer.index(blocks_of(x.count, x.block))
        draft.writer.enter([z])
        draft.writer.line("program = tl.program_id(0)")
        draft.axis(z, f"program // {across}", None)
        programs = blocks_of(x.count, x.block) * z.count
        if not x.fits and (x.count.value or 0) % VECTOR:  # masks would be asked for each element
            draft.writer.line(f"first = program % {across} * {x.symbol}")
            for axis, header in ((replace(x, full=True), f"if first + {x.symbol} <= {x.count}:"), (x, "else:")):
                draft.writer.tile = [axis]
                draft.writer.enter([axis], header)
                draft.axis(axis, "first")
                _store(draft, nest)
                draft.writer.leave()
            return Code((draft.finished(programs, tile.warps),))
        draft.writer.enter([x])
        draft.axis(x, f"program % {across} * {x.symbol}")
    else:
        tile = tuning.tile(tiles.pointwise(product(loops).value, len(kernel.buffers)))
        x = Axis("x", loops, tile.x)
        draft = Draft(kernel, name, [x], wide)
        draft.writer.enter([x])
        draft.axis(x, f"tl.program_id(0) * {x.symbol}")
        programs = blocks_of(x.count, x.block)
    _store(draft, nest)
    return Code((draft.finished(programs, tile.warps),))


def _store(draft: Draft, nest: Nest) -> None:
    """All values first, then what is stored of them."""
    writer = draft.writer
    stores = [s for s in nest.statements if isinstance(s, Store)]
    registers = [writer.value(s.value) for s in stores]
    for s, register in zip(stores, registers, strict=True):
        writer.store_register(s.buffer, s.index, register)


def _has_rows(kernel: Kernel, loops: tuple[Var, ...]) -> bool:
    """Is there something to load that is the same for a long row?"""
    if len(loops) < 2 or loops[-1].size.value is None or not tiles.is_long(loops[-1].size.value):
        return False
    loaded = [v.index for s in kernel.body[0].statements for v in walk(s.value) if isinstance(v, Load)]
    return any(loops[-1] not in place.atoms for place in loaded)
