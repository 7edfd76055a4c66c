"""Matrices below each other, for products of more rows."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from jitney_lowering.joint.writer import Writer

aten = torch.ops.aten


class Stacks:
    """Matrices below each other; what is read by several products is made once."""

    def __init__(self) -> None:
        self.made: dict[tuple[fx.Node, ...], fx.Node] = {}

    def __call__(self, write: Writer, matrices: Sequence[Any]) -> fx.Node:
        """The node of these."""
        key = tuple(matrices)
        if key not in self.made:
            self.made[key] = _stack(write, key)
        return self.made[key]


def _stack(write: Writer, matrices: tuple[fx.Node, ...]) -> fx.Node:
    """Steps of one tensor are read as such."""
    steps = [_step(matrix) for matrix in matrices]
    first = steps[0]
    if first is None or steps != [(first[0], first[1], first[2] + at) for at in range(len(steps))]:
        return write(aten.cat.default, [*matrices], 0)
    source, dim, begin = first
    part = write(aten.slice.Tensor, source, dim, begin, begin + len(steps))
    if dim:
        part = write(aten.permute.default, part, [1, 0, 2])
    whole = write(aten.clone.default, part, memory_format=torch.contiguous_format)
    return write(aten.view.default, whole, [-1, matrices[0].meta["val"].shape[1]])


def _step(matrix: Any) -> tuple[fx.Node, int, int] | None:
    """The tensor of three dimensions of which this is a step, along the first or the second, and which."""
    if matrix.target is aten.select.int:
        source, dim, at = matrix.args
    elif matrix.target is operator.getitem and matrix.args[0].target is aten.unbind.int:
        (source, dim), at = (*matrix.args[0].args, 0)[:2], matrix.args[1]
    else:
        return None
    value = source.meta["val"]
    if value.dim() != 3 or not isinstance(value.shape[2], int) or not isinstance(at, int) or at < 0:
        return None
    if not value.shape[2]:
        return None  # how many rows it has cannot be told
    return (source, dim % 3, at) if dim % 3 < 2 else None
