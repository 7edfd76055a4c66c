"""May a kernel store a buffer where one is that it reads?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jitney_lowering.index import product
from jitney_lowering.ir.kernel import Kernel, Store
from jitney_lowering.ir.loops import Buffer, Extern
from jitney_lowering.ir.values import Load, walk
from jitney_lowering.scheduler.group import in_row

WHOLE_ROW = 1024  # elements of a row that is in registers as a whole, wherever rows are


def replaces(item: Kernel | Extern, new: str, old: str) -> bool:
    """Is each element of ``old`` read in the iteration that stores ``new`` there, or in an earlier nest of its row?

    Backends compute the values of all statements of an iteration before they store any. What a long row computes of
    ``old`` would have to wait in memory for nests after that, so there must be none.
    """
    if not isinstance(item, Kernel):
        return False
    stores = [(n, s) for n, nest in enumerate(item.body) for s in nest.statements
              if isinstance(s, Store) and s.buffer == new]  # fmt: skip
    if len(stores) != 1:
        return False
    at, store = stores[0]
    for number, nest in enumerate((*item.body, *item.finish)):
        for statement in nest.statements:
            for value in walk(statement.value):
                if isinstance(value, Load) and value.buffer == old:
                    same = value.index is store.index
                    if number > at or not (same or (number < at and in_row(store.index, value.index, item.outer))):
                        return False
    return not _waits(item, old, at)


def _waits(item: Kernel, old: str, at: int) -> bool:
    """Is what a long row computes of a buffer kept for nests after the one with this number?"""
    lengths = [product(nest.loops).value for nest in item.body]
    if not item.scratch or all(n is not None and n <= WHOLE_ROW for n in lengths):
        return False
    made = {old}
    for number, nest in enumerate(item.body):
        for statement in nest.statements:
            if any(isinstance(v, Load) and v.buffer in made for v in walk(statement.value)):
                if number > at:
                    return True
                if isinstance(statement, Store) and statement.buffer not in item.buffers:
                    made.add(statement.buffer)
    return False


def over(item: Kernel | Extern, new: str, ending: Iterable[str], buffers: Mapping[str, Buffer]) -> str:
    """One of the buffers that end with this item, in whose memory it may store ``new``; or "".

    The kernel may know either by another name of all that is in its memory (``scatters.py``), not by those of parts.
    """
    stored = _names(new, item.writes, buffers)
    if stored is None or len(stored) != 1:
        return ""
    for old in ending:
        read = _names(old, item.reads | item.writes, buffers)
        if read is None or not item.writes.isdisjoint(read) or not as_large(buffers[new], buffers[old]):
            continue
        if all(replaces(item, stored[0], name) for name in read):
            return old
    return ""


def _names(name: str, touched: Iterable[str], buffers: Mapping[str, Buffer]) -> list[str] | None:
    """The names of all that is in a buffer's memory; None if there are names of parts."""
    found = [n for n in touched if root(n, buffers) == name]
    return found if all(n == name or is_all_of(buffers[n], buffers[name]) for n in found) else None


def root(name: str, buffers: Mapping[str, Buffer]) -> str:
    """The buffer that has the memory: another for a part of a concatenation."""
    home = buffers[name].home
    return name if home is None else home[0]


def is_all_of(part: Buffer, whole: Buffer) -> bool:
    """Is a buffer with a home all that is there, as it is there?"""
    return part.home is not None and part.home[1].value == 0 and alike(part, whole)


def alike(one: Buffer, other: Buffer) -> bool:
    """Can one tensor be either, as it is: the same sizes, strides, dtype and device?"""
    return (one.size, one.stride, one.dtype, one.device) == (other.size, other.stride, other.dtype, other.device)


def as_large(one: Buffer, other: Buffer) -> bool:
    """Has the memory of either room for the other, element by element?"""
    return one.extent is other.extent and one.dtype.itemsize == other.dtype.itemsize and one.device == other.device
