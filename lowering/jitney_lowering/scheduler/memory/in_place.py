"""May a kernel store a buffer where one is that it reads?"""

from __future__ import annotations

from jitney_lowering.ir.kernel import Kernel, Store
from jitney_lowering.ir.loops import Buffer, Extern
from jitney_lowering.ir.values import Load, walk


def replaces(item: Kernel | Extern, new: str, old: str) -> bool:
    """Is each element of ``old`` read in the iteration that stores ``new`` there, or in an earlier nest of its row?

    Backends compute the values of all statements of an iteration before they store any.
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
                    if number > at or value.index is not store.index:
                        return False
    return True


def alike(one: Buffer, other: Buffer) -> bool:
    """Can one tensor be either, as it is: the same sizes, strides, dtype and device?"""
    return (one.size, one.stride, one.dtype, one.device) == (other.size, other.stride, other.dtype, other.device)


def as_large(one: Buffer, other: Buffer) -> bool:
    """Has the memory of either room for the other, element by element?"""
    return one.extent is other.extent and one.dtype.itemsize == other.dtype.itemsize and one.device == other.device
