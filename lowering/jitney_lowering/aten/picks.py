"""Elements of index tensors as indices of a dimension: what is wrong with them is an error, as in eager."""

from __future__ import annotations

from collections.abc import Callable

import torch

from jitney_lowering.aten.builder import Builder
from jitney_lowering.aten.tensor import Shape, Tensor, corner
from jitney_lowering.index import Index, at_most, index, less
from jitney_lowering.ir.intervals import interval
from jitney_lowering.ir.scalar import Scalar, where
from jitney_lowering.ir.values import Constant, Position, Value, apply, indirect, position


class Picks:
    """The indices that a tensor holds.

    Args:
        builder: the program under construction.
        tensor: of an integer dtype.
        size: of the dimension that the indices are of.
        message, exception: what is raised for an index that is none of these.
        wraps: do negative indices count from the end?
        used: is there a place that depends on them? Not so with one element, or the same for all.
    """

    def __init__(
        self,
        builder: Builder,
        tensor: Tensor,
        size: Index,
        message: str,
        exception: type[Exception] = RuntimeError,
        *,
        wraps: bool = False,
        used: bool = True,
    ) -> None:
        self.builder = builder
        self.tensor = tensor
        self.size = size
        low, high = interval(self._given(corner(tensor.size)), builder.limits)
        self.wraps = wraps and not (low is not None and at_most(0, low))
        self.proven = low is not None and high is not None and at_most(0, low) and less(high, size)
        self.value: Callable[[Shape], Value] = self._given  # each index as it is, checked
        if not self.proven:
            wide = Tensor(tensor.size, torch.int64, tensor.device, self._given)
            self.value = builder.guarded(wide, self._outside, message, exception, used and size.value != 1)

    def at(self, at: Shape) -> Index:
        """The index that one element is: never outside of the dimension, right or wrong."""
        value = self.value(at)
        if self.proven and isinstance(value, (Position, Constant)):
            return value.index if isinstance(value, Position) else index(int(value.value))
        if self.wraps:
            given = Scalar(value)
            value = where(given < 0, given + Scalar(position(self.size)), given).value
        if not self.proven:
            return self.builder.within(value, self.size)
        high = self.size.bounds()[1]
        atom, _ = indirect(value, 0, None if high is None else high - 1)
        self.builder.atoms[atom] = value
        return atom

    def _given(self, at: Shape) -> Value:
        return apply("cast", self.tensor.load(at), dtype=torch.int64)

    def _outside(self, value: Value) -> Value:
        i, size = Scalar(value), Scalar(position(self.size))
        return ((i < (-size if self.wraps else 0)) | (i >= size)).value
