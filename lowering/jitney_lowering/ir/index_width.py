"""Do 32 bits count what a kernel counts: the places of its buffers, the iterations of its loops?"""

from __future__ import annotations

from jitney_lowering.index import Index, Size, product
from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Program
from jitney_lowering.ir.matrix_product import matrix_product_of

__all__ = ["NARROW", "counted", "counts", "is_wide"]

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


def counted(kernel: Kernel) -> frozenset[Size]:
    """The symbols that are no larger than what the kernel counts: 32 bits hold them, or it counts in 64.

    Any other symbol is a number of the program's, such as a factor, an offset or a stride: as large as it likes.
    """
    sizes = [var.size for var in (*kernel.outer, *(var for nest in kernel.body for var in nest.loops))]
    sums = [size.terms for size in sizes if size.constant >= 0 and all(coef > 0 for coef, _ in size.terms)]
    alone = (product[0] for terms in sums for _, product in terms if len(product) == 1)
    return frozenset(atom for atom in alone if isinstance(atom, Size))
