"""Who multiplies matrices: torch's library, or a kernel of ours with what follows in it. Asked under max-autotune."""

from __future__ import annotations

from collections.abc import Mapping, Set

from torch import fx

from jitney_lowering import NotLowered, Offer, Takes
from jitney_lowering.ir import Kernel, Program, canonical, index_width, strided
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.emit import emit
from jitney_triton_gpu.options import TritonGpuOptions
from jitney_triton_gpu.tiles import USUAL
from jitney_triton_gpu.tuning import BETTER, Choice, Room, Tuner


def takes(program: Program, options: TritonGpuOptions, tuner: Tuner | None, whole: Set[fx.Node]) -> Takes | None:
    """What decides, as the user asked for it; None to leave all products to torch.

    Args:
        program: the lowered graph.
        options: the backend's.
        tuner: what measures; None where nothing is measured.
        whole: operators that are torch's, whatever else is said.
    """
    if options.gemm == "triton":
        return lambda offer: whole.isdisjoint(offer.call.nodes)
    if options.gemm == "auto" and tuner is not None:
        return lambda offer: whole.isdisjoint(offer.call.nodes) and is_faster(offer, program, tuner)
    return None


def is_faster(offer: Offer, program: Program, tuner: Tuner) -> bool:
    """Has the kernel been measured to take less time than torch's operator and the kernels beside it?"""
    try:
        own = tuned(offer.kernel, program, tuner).seconds
        beside = [_emitted(kernel, f"beside{n}", program, tuner) for n, kernel in enumerate(offer.rest)]
    except NotLowered:
        return False
    names = [name for kernel in (offer.kernel, *offer.rest) for name in kernel.buffers]
    names += [s.buffer for s in strided((offer.call.args, offer.call.kwargs))]
    rooms = rooms_of({name: name for name in names}, program)
    if own is None or rooms is None:
        return False
    theirs = tuner.operator(offer.call, beside, rooms)
    return theirs is not None and own < theirs * BETTER


def tuned(kernel: Kernel, program: Program, tuner: Tuner) -> Choice:
    """The best block sizes of a kernel, by the names that its structure gives: as the launcher will ask again."""
    shape, names = canonical(kernel)
    rooms = rooms_of({f"b{n}": name for n, name in enumerate(names)}, program)
    if rooms is None or kernel.sizes:
        return Choice(USUAL)
    wide = index_width.is_wide(kernel, program)
    return tuner.best(lambda tuning, name: emit(shape, name, wide=wide, tuning=tuning), rooms)


def _emitted(kernel: Kernel, name: str, program: Program, tuner: Tuner) -> Code:
    return emit(kernel, name, wide=index_width.is_wide(kernel, program), tuning=tuned(kernel, program, tuner).tuning)


def rooms_of(buffers: Mapping[str, str], program: Program) -> dict[str, Room] | None:
    """The memory of buffers, by other names; None if sizes change from call to call."""
    found = {}
    for mine, name in buffers.items():
        buffer = program.buffers[name]
        if buffer.extent.value is None:
            return None
        found[mine] = Room(buffer.dtype, buffer.extent.value)
    return found
