"""Neighbours in memory that a thread has all of, such as the corners of a box: one load or store for them.

Where a short row is written out, a thread stores its elements one after the other. Each such store goes to every fourth
place, say, and fills a quarter of the sectors that it touches. Here the elements lie along a second dimension of the
tile, so Triton sees that they are neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch

from jitney_lowering.index import Index
from jitney_lowering.ir import HALVES, Load, Statement, Store, walk
from jitney_triton_gpu.emit.writer import Register, Writer

LENGTHS = (8, 4, 2)  # elements of a run
LOADED, STORED = 16, 32  # bytes of a run at most: a load of more is put together from several threads'
Access = TypeVar("Access", bound=Load | Store)


def load_runs(writer: Writer, statements: Sequence[Statement]) -> None:
    """Lines that load the runs among what statements read; the writer knows their elements then."""
    loads = {v for s in statements for v in walk(s.value) if isinstance(v, Load)}
    plain = [
        v for v in loads
        if v.mask is None and not v.indirect and v.buffer not in writer.written and v not in writer.policies
        and not writer.is_known(v)
    ]  # fmt: skip
    for run in _runs(writer, sorted(plain, key=str), lambda v: (v.buffer, v.dtype), LOADED):
        given, mask = _place(writer, run[0].buffer, run[0].index, len(run))
        name = writer.name()
        converted = ".to(tl.float32)" if run[0].dtype in HALVES else ""
        writer.line(f"{name} = tl.load({given}{mask and f', {mask}'}){converted}")
        for load, element in zip(run, _elements(writer, name, len(run)), strict=True):
            writer.know(load, Register(element, frozenset({writer.tile[0].name})))


def store_runs(writer: Writer, stores: Mapping[Store, Register]) -> list[Store]:
    """Lines that store the runs among these; the stores that are left."""
    left = dict(stores)
    for run in _runs(writer, [*stores], lambda s: (s.buffer, s.value.dtype), STORED):
        given, mask = _place(writer, run[0].buffer, run[0].index, len(run))
        joined = _joined([writer.spread(left.pop(s)) for s in run])
        symbol = writer.tile[0].symbol
        writer.line(f"tl.store({given}, tl.reshape({joined}, [{symbol}, {len(run)}]){mask and f', {mask}'})")
    return [*left]


def _runs(
    writer: Writer, accesses: Iterable[Access], key: Callable[[Access], tuple[str, torch.dtype]], most: int
) -> Iterator[list[Access]]:
    """Longest first, each access in one; a run begins where its length divides the place."""
    if len(writer.tile) != 1 or writer.tile[0].block == 1:
        return
    places: dict[tuple[str, torch.dtype, Index], dict[int, Access]] = {}
    twice: set[tuple[str, torch.dtype, Index]] = set()
    for access in accesses:
        place: Index = access.index
        group = (*key(access), place - place.constant)
        if place.constant in places.setdefault(group, {}):
            twice.add(group)  # which of both is the last one matters
        places[group][place.constant] = access
    for group, found in places.items():
        _, dtype, rest = group
        if dtype is torch.bool or group in twice or writer.tile[0].name not in writer.axes_of(rest):
            continue
        for length in LENGTHS:
            if length * dtype.itemsize > most or any(coefficient % length for coefficient, _ in rest.terms):
                continue
            for start in sorted(found):
                run = range(start, start + length)
                if start % length == 0 and all(n in found for n in run):
                    yield [found.pop(n) for n in run]


def _place(writer: Writer, buffer: str, first: Index, length: int) -> tuple[str, str]:
    """The text of the addresses of a run, and that of its mask."""
    shown, axes = writer.address(buffer, first)
    mask = writer.mask(axes)
    return f"({shown})[:, None] + tl.arange(0, {length})[None, :]", mask and f"({mask})[:, None]"


def _elements(writer: Writer, name: str, length: int) -> list[str]:
    """Names of the columns of a tile, for which lines are written."""
    if length == 1:
        return [name]
    symbol = writer.tile[0].symbol
    shape = f"[{symbol}, 2]" if length == 2 else f"[{symbol}, {length // 2}, 2]"
    even, odd = writer.name(), writer.name()
    writer.line(f"{even}, {odd} = tl.split(tl.reshape({name}, {shape}))")
    halves = (_elements(writer, half, length // 2) for half in (even, odd))
    return [element for pair in zip(*halves, strict=True) for element in pair]


def _joined(values: Sequence[str]) -> str:
    """Values side by side: the text of a tile of as many dimensions more as two is multiplied by itself."""
    if len(values) == 1:
        return values[0]
    return f"tl.join({_joined(values[::2])}, {_joined(values[1::2])})"
