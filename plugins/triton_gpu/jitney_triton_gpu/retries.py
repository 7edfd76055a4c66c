"""Kernels that Triton refused, and the block sizes that are tried before their operators run as they are."""

from __future__ import annotations

from collections.abc import Sequence

from jitney_lowering import Kernel
from jitney_lowering.ir import Reduce, Scan
from jitney_triton_gpu.tiles import Tuning

SMALLER = Tuning(x=-2)
ONE_BY_ONE = Tuning(x=-20)
"""One row at a time: tiles of one dimension, of which Triton's passes know more than of two."""


class Retries:
    """What is tried for each kernel of a graph."""

    def __init__(self) -> None:
        self._tried: list[tuple[Kernel, list[Tuning]]] = []

    def tuning(self, shape: Kernel) -> Tuning | None:
        """Block sizes of a canonical kernel that was refused; None for another one."""
        return next((left[0] for known, left in self._tried if known == shape and left), None)

    def refused(self, shapes: Sequence[Kernel]) -> bool:
        """Note that these were refused, as they were made last; is there something left to try for one of them?"""
        left = [self._goes_on(shape) for shape in shapes]
        return any(left)

    def _goes_on(self, shape: Kernel) -> bool:
        left = next((left for known, left in self._tried if known == shape), None)
        if left is None:
            left = [SMALLER, ONE_BY_ONE] if _has_rows(shape) else [SMALLER]
            self._tried.append((shape, left))
        else:
            del left[:1]
        return bool(left)


def _has_rows(shape: Kernel) -> bool:
    return any(isinstance(s, (Reduce, Scan)) for nest in shape.body for s in nest.statements) or len(shape.body) > 1
