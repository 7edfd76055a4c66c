"""Results that are each reduced from so much that several programs do it: sums over everything, or over columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jitney_lowering.index import Index, Var, index, product
from jitney_lowering.ir import Accumulate, Apply, Kernel, Load, Reduce, Store, load, rebuild, ref, walk
from jitney_triton_gpu import tiles
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.emit.finish import Part, finish
from jitney_triton_gpu.emit.function import Draft, blocks_of
from jitney_triton_gpu.emit.indices import fastest, places, registers, shared_by_rows, widest, work
from jitney_triton_gpu.emit.reduce import Running
from jitney_triton_gpu.emit.spaces import Arrangement, Axis
from jitney_triton_gpu.emit.writer import Register


def split(kernel: Kernel, kept: tuple[Var, ...], name: str, wide: bool, tuning: tiles.Tuning = tiles.USUAL) -> Code:
    """A program for each block of results and each part of what these are reduced from.

    Args:
        kernel: of one nest.
        kept: the loops that the results have.
        name: of the functions.
        wide: count places in 64 bits.
        tuning: other block sizes than the usual ones.
    """
    (nest,) = kernel.body
    loops = (*kernel.outer, *nest.loops)
    gone = tuple(v for v in loops if v not in kept)
    counts = fastest(widest(p for p in places(kernel) if any(v in p.atoms for v in gone)), loops)
    across = sum(counts[v] for v in kept) > sum(counts[v] for v in gone)
    shared = shared_by_rows(nest.statements, kept)
    results = product(kept).value if kept else 1
    tile, many = tiles.split(
        results,
        product(gone).value,
        across,
        is_heavy(kernel),
        shared,
        held=registers(nest.statements),
        work=work(nest.statements),
    )
    tile, many = (tuning if kept else replace(tuning, x=0)).tile(tile), tuning.count(many)
    x, r = Axis("x", kept, tile.x), Axis("r", gone, tile.r)
    inline = renamed_finish(kernel, kept) if many == 1 else None
    parts = [Part.of(kernel, s, many) for s in nest.statements if isinstance(s, (Reduce, Accumulate))]
    parts_of = {part.name: part for part in parts}  # a row's elements that are written out share one
    workspaces = [w for part in parts_of.values() for w in part.workspaces] if inline is None else []
    arrangement = Arrangement(x.block > 1, across)
    tiled = arrangement.tiled
    streams = not any(isinstance(s, Store) for s in nest.statements)
    draft = Draft(kernel, f"{name}_parts", arrangement.tile(x, r), wide, workspaces, streams=streams)
    writer = draft.writer
    blocks = blocks_of(x.count, x.block)
    writer.enter([x])
    writer.line("program = tl.program_id(0)")
    writer.line(f"part = program // {writer.index(blocks)}")
    draft.axis(x, f"program % {writer.index(blocks)}{f' * {x.symbol}' if tiled else ''}", arrangement.of_rows)
    draft.blocks[r.symbol] = r.block
    running = [Running(writer, s) for s in nest.statements if isinstance(s, (Reduce, Accumulate))]
    length = blocks_of(blocks_of(r.count, r.block), many) * r.block
    size = writer.index(length)
    writer.line(f"first = part * {size}")
    end = f"tl.minimum(first + {size}, {writer.index(r.count)})"
    writer.enter([r], f"for r_start in {tiles.loop('split', 'first', end, r.symbol, tuning.stages)}:")
    draft.axis(r, "r_start", arrangement.of_elements)
    stores = [s for s in nest.statements if isinstance(s, Store)]
    stored = [writer.value(s.value) for s in stores]
    for one in running:
        one.step(writer, r)
    for s, register in zip(stores, stored, strict=True):
        writer.store_register(s.buffer, s.index, register)
    writer.leave()
    writer.tile = [x] if tiled else []
    if inline is not None:
        _store_results(draft, running, inline, x, arrangement)
        return Code((draft.finished(blocks, tile.warps),))
    for one, part in zip(running, parts, strict=True):
        _store_part(draft, one, part, x, arrangement)
    function = draft.finished(blocks * many, tile.warps)
    return Code((function, *finish(kernel, [*parts_of.values()], name, wide)), tuple(workspaces))


def is_heavy(kernel: Kernel) -> bool:
    """Is there much to compute for each element?"""
    values = {v for s in kernel.body[0].statements for v in walk(s.value)}
    return sum(isinstance(v, Apply) for v in values) > 8


def renamed_finish(kernel: Kernel, kept: tuple[Var, ...]) -> list[Store] | None:
    """What is stored of the results, in terms of the loops that they have; None if these cannot be told."""
    made: list[Store] = []
    sums = [s for s in kernel.body[0].statements if isinstance(s, Accumulate)]
    places = {s.buffer: s.index for s in sums}
    if len(places) != len(sums):
        return None
    for nest in kernel.finish:
        for s in nest.statements:
            assert isinstance(s, Store)
            order: tuple[Var, ...] = ()
            for place in places.values():
                if all(v in place.atoms for v in kept):
                    order = tuple(sorted(kept, key=lambda v: -_step(place, v)))
            if [v.size for v in order] != [v.size for v in nest.loops]:
                return None
            table: dict[Any, Index] = dict(zip(nest.loops, map(index, order), strict=True))
            value = rebuild(s.value, index=lambda i, table=table: i.substitute(table))  # type: ignore[misc]
            loads = [v for v in walk(value) if isinstance(v, Load)]
            if any(v.buffer not in places or v.index is not places[v.buffer] for v in loads):
                return None
            made.append(Store(s.buffer, s.index.substitute(table), value))
    return made


def _step(place: Index, var: Var) -> int:
    stride = place.stride(var)
    return 0 if stride is None or stride.value is None else stride.value


def _store_results(
    draft: Draft, running: list[Running], stores: list[Store], x: Axis, arrangement: Arrangement
) -> None:
    writer = draft.writer
    for one in running:
        s = one.statement
        name = one.made.finish(writer, one.name, one.at, arrangement.reduced, arrangement.tiled)
        register = Register(name, frozenset({x.name}))
        if isinstance(s, Accumulate):
            writer.know(load(s.buffer, s.index, s.value.dtype), register)
        else:
            writer.know(ref(s.name, s.dtype), register)
    for store in stores:
        writer.store(store.buffer, store.index, store.value)


def _store_part(draft: Draft, one: Running, part: Part, x: Axis, arrangement: Arrangement) -> None:
    writer = draft.writer
    place = one.statement.index if isinstance(one.statement, Accumulate) else index(0)
    dim, tiled = arrangement.reduced, arrangement.tiled
    at = f"part * {writer.index(part.extent)} + {writer.index(place)}"
    mask = writer.mask(frozenset({x.name}))
    ending = f", {mask}" if mask else ""
    if one.at:
        value, position = writer.name("t"), writer.name("t")
        writer.line(f"{value}, {position} = {one.made.along(f'({one.name}, {one.at})', dim, tiled)}")
        writer.line(f"tl.store({part.name} + {at}, {value}{ending})")
        writer.line(f"tl.store({part.positions} + {at}, {position}{ending})")
        return
    made = Register(one.made.finish(writer, one.name, "", dim, tiled), frozenset({x.name}))
    writer.line(f"tl.store({part.name} + {at}, {made.name}{ending})")
