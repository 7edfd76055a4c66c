"""Matrix products: each program computes a tile of the result from tiles of both matrices, in tensor units."""

from __future__ import annotations

import torch

from jitney_lowering.ir import (
    Apply,
    Kernel,
    Load,
    MatrixProduct,
    Store,
    Value,
    ref,
)
from jitney_triton_gpu import tiles
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.emit.dtypes import NAMES
from jitney_triton_gpu.emit.function import Draft, blocks_of
from jitney_triton_gpu.emit.spaces import Axis
from jitney_triton_gpu.emit.writer import Register, Writer

GROUP = 8  # blocks of rows whose programs run at the same time: they share the other matrix in the cache


def product(kernel: Kernel, found: MatrixProduct, name: str, wide: bool, tuning: tiles.Tuning = tiles.USUAL) -> Code:
    """One program for each tile of the result.

    Args:
        kernel: what to compute.
        found: its ``matrix_product_of``.
        name: the function's.
        wide: count places in 64 bits.
        tuning: other block sizes: ``x`` along the columns, ``r`` along the rows, ``many`` along what is summed.
    """
    *batch, row, column = kernel.outer
    sizes = (row.size.value, column.size.value, found.along.size.value)
    tile, depth, stages = tiles.product(*sizes, len(found.rights), tuning)
    x, y, z = Axis("x", (column,), tile.x), Axis("y", (row,), tile.r), Axis("z", tuple(batch), 1)
    draft = Draft(kernel, name, [y, x], wide)
    writer = draft.writer
    across, down = (writer.index(blocks_of(axis.count, axis.block)) for axis in (x, y))
    writer.enter([x, y, z])
    writer.line("program = tl.program_id(0)")
    writer.line(f"at = program % ({across} * {down})")
    writer.line(f"first = at // ({GROUP} * {across}) * {GROUP}")
    writer.line(f"rows = tl.minimum({down} - first, {GROUP})")
    writer.line(f"within = at - first * {across}")
    draft.axis(y, f"(first + within % rows) * {y.symbol}", "[:, None]")
    draft.axis(x, f"within // rows * {x.symbol}", "[None, :]")
    if batch:
        draft.axis(z, f"program // ({across} * {down})", None)
    totals = [writer.name("total") for _ in found.rights]
    for total in totals:
        writer.line(f"{total} = tl.zeros({writer.shape()}, tl.float32)")
    end = writer.index(found.along.size)
    writer.enter([], f"for k_start in tl.range(0, {end}, KBLOCK, num_stages={stages}):")
    draft.blocks["KBLOCK"] = depth
    left = _operand(draft, found, found.left, depth, "[None, :]", [y])
    for total, value in zip(totals, found.rights, strict=True):
        right = _operand(draft, found, value, depth, "[:, None]", [x])
        writer.line(f"{total} = tl.dot({left}, {right}, {total})")
    writer.leave()
    for total, summed in zip(totals, found.names, strict=True):
        writer.know(ref(summed, torch.float32), Register(total, frozenset({"x", "y"})))
    stores = [s for s in kernel.body[1].statements if isinstance(s, Store)]
    registers = [writer.value(s.value) for s in stores]
    for s, register in zip(stores, registers, strict=True):
        writer.store_register(s.buffer, s.index, register)
    programs = blocks_of(x.count, x.block) * blocks_of(y.count, y.block) * z.count
    return Code((draft.finished(programs, tile.warps),))


def _operand(draft: Draft, found: MatrixProduct, value: Value, depth: int, subscript: str, other: list[Axis]) -> str:
    """The name of a tile of one matrix, with zeros where there is nothing; lines are written for it."""
    writer = draft.writer
    k = Axis("k", (found.along,), depth)
    writer.enter([k])
    before = writer.tile
    writer.tile = [*other, k] if subscript == "[None, :]" else [k, *other]
    draft.axis(k, "k_start", subscript)
    assert isinstance(value, Apply)
    source = value.args[0]
    mask = writer.mask(frozenset({k.name, *(axis.name for axis in other)}))
    name = writer.name("tile")
    if isinstance(source, Load) and not source.indirect and source.mask is None:
        shown, axes = writer.address(source.buffer, source.index)
        if not axes >= {axis.name for axis in writer.tile}:  # an expanded matrix, or one with a size of 1
            shown = f"tl.broadcast_to({shown}, {writer.shape()})"
        writer.line(f"{name} = tl.load({shown}{f', {mask}, other=0.0' if mask else ''})")
    else:
        writer.line(f"{name} = {_computed(writer, source, mask)}.to({NAMES[found.dtype]})")
    writer.tile = before
    writer.leave()
    return name


def _computed(writer: Writer, value: Value, mask: str) -> str:
    shown = writer.spread(writer.value(value))
    return f"tl.where({mask}, {shown}, 0.0)" if mask else shown
