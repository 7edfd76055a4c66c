"""Which form a kernel's code has, and the code.

- *pointwise*: each program computes some elements;
- *rows*: each program computes some rows, reducing and scanning within a row;
- *split*: results that are reduced from so much that it is cut into parts, whose partial results are put together by a
  second function (``finish.py``): sums over everything, or over columns;
- *product*: tiles of a matrix product, and what is done to its elements;
- *sweep*: rows with something reduced over all of them: each program goes over many rows, with accumulators of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from jitney_lowering import NotLowered
from jitney_lowering.index import Index, Var
from jitney_lowering.ir import Accumulate, Kernel, Reduce, Scan, Store, forward_stores, matrix_product_of
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.emit.direction import forwards
from jitney_triton_gpu.emit.pointwise import NOTHING, pointwise
from jitney_triton_gpu.emit.product import product
from jitney_triton_gpu.emit.rows import rows
from jitney_triton_gpu.emit.split import split
from jitney_triton_gpu.emit.sweep import sweep
from jitney_triton_gpu.tiles import USUAL, Tuning


def emit(
    kernel: Kernel,
    name: str,
    *,
    replaced: Mapping[str, str] = NOTHING,
    wide: bool = False,
    tuning: Tuning = USUAL,
) -> Code:
    """The Triton functions of a kernel.

    Args:
        kernel: not changed.
        name: its functions' names begin so.
        replaced: buffers in whose memory the kernel stores something else -> the name of that.
        wide: count places in 64 bits.
        tuning: other block sizes than the usual ones.
    """
    kernel = forwards(forward_stores(kernel, replaced))
    found = matrix_product_of(kernel)
    if found is not None:
        return product(kernel, found, name, wide, tuning)
    statements = [s for nest in kernel.body for s in nest.statements]
    reduces = any(isinstance(s, Reduce) for s in statements)
    if not kernel.partials and (not reduces or kernel.outer):
        if kernel.finish:
            raise NotLowered("an end that waits for nothing")
        scans = any(isinstance(s, Scan) for s in statements)
        plain = not reduces and not scans and not kernel.scratch and len(kernel.body) == 1
        return pointwise(kernel, name, wide, tuning, replaced) if plain else rows(kernel, name, wide, replaced, tuning)
    if not all(isinstance(s, Store) for nest in kernel.finish for s in nest.statements):
        raise NotLowered("a reduction of what is reduced")
    kept = kept_loops(kernel)
    if kept is not None:
        return split(kernel, kept, name, wide, tuning)
    if reduces and not kernel.outer:
        raise NotLowered("results of everything beside others")
    return sweep(kernel, name, wide, replaced, tuning)


def kept_loops(kernel: Kernel) -> tuple[Var, ...] | None:
    """The loops that results have, if the kernel is one nest in which all results have the same; else None."""
    if len(kernel.body) != 1 or kernel.scratch:
        return None
    loops = (*kernel.outer, *kernel.body[0].loops)
    found: set[frozenset[Var]] = set()
    for s in kernel.body[0].statements:
        if isinstance(s, Scan):
            return None
        if isinstance(s, Reduce):
            if kernel.outer:
                return None
            found.add(frozenset())
        elif isinstance(s, Accumulate):
            found.add(_own(s.index, loops))
    if len(found) != 1:
        return None
    (kept,) = found
    return tuple(v for v in loops if v in kept)


def _own(place: Index, loops: tuple[Var, ...]) -> frozenset[Var]:
    return frozenset(v for v in loops if v in place.atoms)
