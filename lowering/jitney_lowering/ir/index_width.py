"""Do 32 bits count what a kernel counts: the places of its buffers, the iterations of its loops?"""

from __future__ import annotations

from jitney_lowering.index import Index, product
from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Program
from jitney_lowering.ir.matrix_product import matrix_product_of

__all__ = ["NARROW", "counts", "is_wide"]

NARROW = 2**31 - 2**20  # places and iterations that 32 bits can count, with room for the last tile


def counts(kernel: Kernel, program: Program) -> list[Index]:
    """How many elements the memory of its buffers spans, and how many iterations the loops have that it counts as one.

    A matrix product never counts the loop that it sums over together with the others.
    """
    extents = [program.buffers[name].extent for name in kernel.buffers]
    if matrix_product_of(kernel) is not None:
        return [*extents, product(kernel.outer), *(product(nest.loops) for nest in kernel.body)]
    return [*extents, *(product((*kernel.outer, *nest.loops)) for nest in kernel.body)]


def is_wide(kernel: Kernel, program: Program) -> bool:
    """Must its code count in 64 bits? Sizes that change from call to call are looked at in each call."""
    return any(count.value is not None and count.value > NARROW for count in counts(kernel, program))
