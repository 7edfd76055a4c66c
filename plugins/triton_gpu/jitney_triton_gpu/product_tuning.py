"""Who multiplies matrices: torch's library, or a kernel of ours with what follows in it.

Under max-autotune that is measured. Otherwise products of few rows are ours: the time goes into reading the other
matrix. The library takes 0.95 to 2.2 times as long for 2 to 16 rows and matrices from 256 x 256 to 14,336 x 4,096
(bfloat16, an H200), and one such kernel has several products of the same rows, what comes before and what follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from torch import fx

from jitney_lowering import NotLowered, Offer, Takes
from jitney_lowering.ir import Kernel, Program, canonical, index_width, matrix_product_of, strided
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.emit import emit
from jitney_triton_gpu.options import TritonGpuOptions
from jitney_triton_gpu.tiles import FEW_ROWS, USUAL
from jitney_triton_gpu.tuning import BETTER, Choice, Room, Tuner

LEAST = 256  # rows and columns of a matrix that is read


def takes(program: Program, options: TritonGpuOptions, tuner: Tuner | None, whole: Set[fx.Node]) -> Takes | None:
    """What decides, as the user asked for it; None to leave all products to torch.

    Args:
        program: the lowered graph.
        options: the backend's.
        tuner: what measures; None where nothing is measured.
        whole: operators that are torch's, whatever else is said.
    """
    if options.gemm == "triton":
        return Takes(lambda offer: _is_free(offer, whole))
    if options.gemm != "auto":
        return None
    if tuner is not None:
        return Takes(lambda offer: _is_free(offer, whole) and is_faster(offer, program, tuner))
    return Takes(lambda offer: _is_free(offer, whole) and is_narrow(offer.kernel), FEW_ROWS)


def _is_free(offer: Offer, whole: Set[fx.Node]) -> bool:
    return all(whole.isdisjoint(call.nodes) for call in offer.calls)


def is_narrow(kernel: Kernel) -> bool:
    """Has one matrix few rows, and is the other one large enough that reading it is what takes time?"""
    found = matrix_product_of(kernel)
    if found is None:
        return False
    *batch, rows, columns = [v.size.value for v in kernel.outer]
    depth = found.along.size.value
    if depth is None or rows is None or columns is None or any(n != 1 for n in batch):
        return False
    return 1 < min(rows, columns) <= FEW_ROWS and depth >= LEAST and max(rows, columns) >= LEAST


def is_faster(offer: Offer, program: Program, tuner: Tuner) -> bool:
    """Has the kernel been measured to take less time than torch's operator and the kernels beside it?"""
    try:
        own = tuned(offer.kernel, program, tuner).seconds
        beside = [_emitted(kernel, f"beside{n}", program, tuner) for n, kernel in enumerate(offer.rest)]
    except NotLowered:
        return False
    names = [name for kernel in (offer.kernel, *offer.rest) for name in kernel.buffers]
    names += [s.buffer for s in strided([(call.args, call.kwargs) for call in offer.calls])]
    rooms = rooms_of({name: name for name in names}, program)
    if own is None or rooms is None:
        return False
    times = [tuner.operator(call, beside if number == 0 else [], rooms) for number, call in enumerate(offer.calls)]
    known = [seconds for seconds in times if seconds is not None]
    return len(known) == len(times) and own < sum(known) * BETTER


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
