"""Elements that lie two, three or four apart in memory: whole vectors, and shuffles of them.

Rows of three elements whose vectors go along the rows read and write every third one. Lane by lane that takes an
instruction or two for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitney_llvm_cpu.emit.builder import Function, Reg

MOST = 4  # of more that lie apart, lane by lane is as fast


def picked(f: Function, load: Callable[[int], Reg], step: int, width: int) -> Reg:
    """Every ``step``-th element: ``width`` of them, of which the first and the last are the outermost that is read.

    Args:
        f: where it is written.
        load: makes a vector of the neighbours that begin so many elements after the first one.
        step: how far the elements lie apart, at least 2.
        width: lanes, at least ``step``.
    """
    starts = [*range(0, (step - 1) * width, width), (step - 1) * (width - 1)]  # the last one ends with the last element
    made, there = load(starts[0]), [lane * step for lane in range(width)]  # where in it each lane is, if it is
    for start, before in zip(starts[1:], starts, strict=False):
        further = [lane * step - start for lane in range(width)]
        missing = [lane * step >= before + width for lane in range(width)]
        order = [
            (width + n if n < width else -1) if new else old
            for new, n, old in zip(missing, further, there, strict=True)
        ]
        made, there = f.shuffle(made, load(start), order), list(range(width))
    return made


def woven(f: Function, parts: Sequence[Reg]) -> list[Reg]:
    """The vectors in memory of which every ``len(parts)``-th element is a lane of the same part, in their order."""
    step, width = len(parts), parts[0].type.width
    made = []
    for vector in range(step):
        elements = [divmod(vector * width + lane, step) for lane in range(width)]  # the part's lane, and which part
        one = parts[0]
        for part in range(1, step):
            before = range(width) if part > 1 else [lane for lane, _ in elements]
            order = [
                width + lane if which == part else before[k] if which < part else -1
                for k, (lane, which) in enumerate(elements)
            ]
            one = f.shuffle(one, parts[part], order)
        made.append(one)
    return made
