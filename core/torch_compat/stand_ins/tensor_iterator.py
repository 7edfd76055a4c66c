"""The strides of a result that ATen's TensorIterator makes (``build`` in ``aten/src/ATen/TensorIterator.cpp``)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch


def result_strides(shape: Sequence[Any], operands: Sequence[torch.Tensor], *, numbers: bool) -> tuple[Any, ...]:
    """Strides of a new result, of dimensions of size one as well. Symbols compare as what they were when captured.

    Args:
        shape: the result's, to which those of the operands broadcast.
        operands: in the order in which the kernel takes them.
        numbers: are there also Python's? TensorIterator has them as tensors without dimensions.
    """
    sizes, found = [*map(hint, shape)], [([*map(hint, x.shape)], [*map(hint, x.stride())]) for x in operands]
    order = [*range(len(sizes))][::-1]
    if not numbers and all(of == sizes for of, _ in found):
        stride = found[0][1]
        for known in (order, [1, 3, 2, 0][: len(sizes) // 4 * 4]):
            if len(known) == len(sizes) and all(_lies(sizes, steps, known) for _, steps in found):
                return _packed(shape, known)
        dense = _lies(sizes, stride, sorted(order, key=lambda d: (stride[d], sizes[d])))
        if dense and all(steps == stride for _, steps in found):
            return operands[0].stride()
    return _packed(shape, _inner_first(order, sizes, [_spread(*x, sizes) for x in found]))


def hint(size: Any) -> int:
    """A size as a number: a symbolic one counts as what it was when captured, one of data as large."""
    if isinstance(size, torch.SymInt):
        found = size.node.hint
        return int(found) if found is not None else 4096
    return int(size)


def _lies(sizes: Sequence[int], steps: Sequence[int], inner_first: Sequence[int]) -> bool:
    """Are the dimensions packed in this order? It does not matter where one of size one would go next."""
    packed = _packed(sizes, inner_first)
    return 0 in sizes or all(sizes[d] == 1 or steps[d] == packed[d] for d in inner_first)


def _packed(shape: Sequence[Any], inner_first: Sequence[int]) -> tuple[Any, ...]:
    """Contiguous ones count an empty dimension as one."""
    strides: list[Any] = [1] * len(shape)
    least = all(a > b for a, b in itertools.pairwise(inner_first))
    for inner, outer in itertools.pairwise(inner_first):
        strides[outer] = strides[inner] * (least if type(shape[inner]) is int and shape[inner] == 0 else shape[inner])
    return tuple(strides)


def _spread(sizes: Sequence[int], steps: Sequence[int], shape: Sequence[int]) -> list[int]:
    """An operand's strides for the dimensions of the result, zero where it is broadcast."""
    new = len(shape) - len(sizes)
    return [0] * new + [s if n == m else 0 for n, s, m in zip(sizes, steps, shape[new:], strict=True)]


def _inner_first(order: list[int], sizes: Sequence[int], operands: Sequence[Sequence[int]]) -> list[int]:
    """``reorder_dimensions``: sorted by an order that is none, since not all dimensions compare."""
    for at in range(1, len(order)):
        for other in range(at)[::-1]:
            sign = _compared(order[other], order[at], sizes, operands)
            if sign > 0:
                order[other], order[at] = order[at], order[other]
                at = other
            elif sign < 0:
                break
    return order


def _compared(one: int, other: int, sizes: Sequence[int], operands: Sequence[Sequence[int]]) -> int:
    for steps in operands:
        if steps[one] and steps[other] and (steps[one] != steps[other] or sizes[one] > sizes[other]):
            return steps[one] - steps[other] or 1
    return 0
