"""A graph's results as eager lays them out in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney_onnxruntime.sizes import Symbols
from jitney_onnxruntime.writer import Size


@dataclass(frozen=True)
class Result:
    """A tensor that the model returns.

    Args:
        name: in the ONNX graph.
        dtype: the tensor's.
        shape: as the graph has it.
        stride: as eager has it.
        order: the dimensions as they lie in memory, outermost first: the model transposes by it.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    order: tuple[int, ...]

    def planned(self, symbols: Symbols, read: tuple[int, ...]) -> Room:
        """Its sizes in a call."""
        shape, stride = ([symbols.computed(n, read) for n in part] for part in (self.shape, self.stride))
        inverse = [self.order.index(dim) for dim in range(len(shape))]
        made = [shape[dim] for dim in self.order]
        steps = _dense(made)
        plain = inverse == sorted(inverse)
        as_laid = [steps[place] for place in inverse]
        same = all(n < 2 or a == b for n, a, b in zip(shape, as_laid, stride, strict=True))
        return Room(self.dtype, made, None if plain else inverse, None if same else stride)


@dataclass(frozen=True)
class Room:
    """Memory for a result, with the sizes of a call.

    Args:
        dtype: the tensor's.
        shape: as the model writes it.
        inverse: how its dimensions are ordered then, if otherwise.
        stride: to which it is copied then, if it must be.
    """

    dtype: torch.dtype
    shape: list[int]
    inverse: list[int] | None
    stride: list[int] | None

    def finished(self, made: torch.Tensor) -> torch.Tensor:
        """What the graph returns of what the model wrote."""
        if self.inverse is not None:
            made = made.permute(self.inverse)
        return made if self.stride is None else laid_out(made, self.stride)


def laid_out(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """A copy with these strides; those that are 0 stand for equal elements."""
    copy = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype)
    part, source = copy, tensor
    for dim, step in enumerate(stride):
        if step == 0 and tensor.shape[dim] > 1:
            part, source = part.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
    part.copy_(source)
    return copy


def _dense(shape: Sequence[int]) -> list[int]:
    """Strides without gaps."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return steps[::-1]


def order_of(tensor: Any) -> tuple[int, ...]:
    """The dimensions of a FakeTensor as they lie in memory, outermost first; as they are, if there are gaps."""
    plain = tuple(range(tensor.dim()))
    if not all(type(n) is int for n in (*tensor.shape, *tensor.stride())):
        return plain
    order = tuple(sorted(plain, key=lambda dim: (-tensor.stride(dim), tensor.shape[dim] == 1, dim)))
    steps = _dense([tensor.shape[dim] for dim in order])
    dense = all(tensor.shape[dim] == 1 or tensor.stride(dim) == step for dim, step in zip(order, steps, strict=True))
    return order if dense else plain
