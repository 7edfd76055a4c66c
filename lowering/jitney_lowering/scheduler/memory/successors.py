"""What kernels store where something was that nobody reads afterwards: an operator's result, or a large temporary."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Extern, Program
from jitney_lowering.scheduler.memory.in_place import over, root
from jitney_lowering.scheduler.memory.plan import is_apart

_aten = torch.ops.aten

# Operators whose results are memory that nobody else has, whatever their schemas leave open.
FRESH = {
    _aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default,
    _aten.convolution.default, _aten.convolution_backward.default,
}  # fmt: skip
if hasattr(torch.ops.mkldnn, "_convolution_pointwise"):
    FRESH.add(torch.ops.mkldnn._convolution_pointwise.default)


def taken_over(
    program: Program,
    items: Sequence[Kernel | Extern],
    kept: Collection[str],
    given: Collection[str],
    large: int | None = None,
) -> dict[str, str]:
    """Buffer that a kernel fills -> the operator's result, or the temporary, whose memory it gets.

    Args:
        program: the graph.
        items: what runs, in order.
        kept: buffers that somebody has after the call.
        given: those that have memory already: inputs, what replaces an input.
        large: bytes of a temporary that has memory of its own; None: none has.

    In the kernel each element is read only where the new one is made, and nobody reads the old one later. A temporary
    that replaces another one is the plan's matter (``plan.py``).
    """
    buffers = program.buffers
    homes = {name for buffer in buffers.values() if buffer.home for name in (buffer.name, buffer.home[0])}
    last = {root(name, buffers): n for n, item in enumerate(items) for name in item.reads | item.writes}
    operators: set[str] = set()  # whose results may be taken over
    temporaries: set[str] = set()  # the same, by what is kept
    seen = set(given) | homes
    found: dict[str, str] = {}
    for number, item in enumerate(items):
        if isinstance(item, Kernel):
            ending = sorted({old for name in item.reads if last[old := root(name, buffers)] == number})
            for new in sorted(item.writes - seen):
                free = [o for o in ending if o in operators or (o in temporaries and new in kept)]
                old = over(item, new, free, buffers)
                if old:
                    found[new] = old
                    ending.remove(old)
        for name in {root(n, buffers) for n in item.writes}.difference(kept, given):
            if name in found or (isinstance(item, Extern) and not item.into and item.target in FRESH):
                operators.add(name)
            elif is_apart(buffers[name], large) and (isinstance(item, Kernel) or item.into):
                temporaries.add(name)
        seen |= item.reads | item.writes
    return found
