"""What kernels store where an operator's result was, which nobody reads afterwards."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Extern, Program
from jitney_lowering.scheduler.memory.in_place import alike, as_large, replaces

_aten = torch.ops.aten

# Operators whose results are memory that nobody else has, whatever their schemas leave open.
FRESH = {
    _aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default,
    _aten.convolution.default, _aten.convolution_backward.default,
}  # fmt: skip


def taken_over(
    program: Program, items: Sequence[Kernel | Extern], kept: Collection[str], given: Collection[str]
) -> dict[str, str]:
    """Buffer that a kernel fills -> the operator's result whose memory it gets.

    Args:
        program: the graph.
        items: what runs, in order.
        kept: buffers that somebody has after the call.
        given: those that have memory already: inputs, what replaces an input.

    In the kernel each element is read only where the new one is made, and nobody reads the old one later. What somebody
    has after the call is the old tensor itself, so the two are alike in size, strides and dtype.
    """
    made = {name: n for n, item in enumerate(items) if isinstance(item, Extern) and not item.into
            and item.target in FRESH for name in item.buffers if name is not None and name not in kept}  # fmt: skip
    last = {name: n for n, item in enumerate(items) for name in item.reads | item.writes}
    homes = {name for buffer in program.buffers.values() if buffer.home for name in (buffer.name, buffer.home[0])}
    seen = set(given) | homes
    found: dict[str, str] = {}
    for number, item in enumerate(items):
        if isinstance(item, Kernel):
            ending = [old for old in sorted(item.reads) if old in made and last[old] == number and old not in homes]
            for new in sorted(item.writes - seen):
                fits = alike if new in kept else as_large
                own = program.buffers[new]
                old = next((o for o in ending if fits(own, program.buffers[o]) and replaces(item, new, o)), None)
                if old is not None:
                    found[new] = old
                    ending.remove(old)
        seen |= item.reads | item.writes
    return found
