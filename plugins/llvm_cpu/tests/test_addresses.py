"""Addresses that the caller of a graph has looked at are those that its kernels get."""

from __future__ import annotations

from collections.abc import Callable

import torch

import jitney

Change = Callable[[list[torch.Tensor]], object]


def step(tensors: list[torch.Tensor]) -> torch.Tensor:
    """As an optimizer's: writes to some, reads others."""
    for parameter, gradient in zip(tensors[:3], tensors[3:], strict=True):
        parameter.mul_(0.5).sub_(gradient)
    return tensors[0].sum()


def swap(tensors: list[torch.Tensor]) -> None:
    tensors[0], tensors[1] = tensors[1], tensors[0]


def renew(tensors: list[torch.Tensor]) -> None:
    """The memory goes away and comes back elsewhere, under the same tensor."""
    storage, numbers = tensors[2].untyped_storage(), tensors[2].clone()
    storage.resize_(0)
    kept = [torch.empty(7) for _ in range(8)]
    storage.resize_(7 * 4)
    tensors[2].copy_(numbers)
    kept.clear()


def share(tensors: list[torch.Tensor]) -> None:
    tensors[4] = tensors[1]


def overlap(tensors: list[torch.Tensor]) -> None:
    room = torch.arange(10.0)
    tensors[0], tensors[5] = room[:7], room[3:]


def replace(tensors: list[torch.Tensor]) -> None:
    tensors[3].data = torch.full((7,), 3.0)


CHANGES: list[Change] = [len, swap, replace, renew, len, share, swap, overlap, replace]  # len: none


def test_tensors_whose_memory_is_another_are_found_where_they_are() -> None:
    sides = [[torch.linspace(-n, n + 1, 7) for n in range(6)] for _ in range(2)]
    compiled = jitney.compile(step, backend="llvm_cpu", dynamic=False, fullgraph=True)
    for _ in range(2):
        for change in CHANGES:
            for tensors in sides:
                change(tensors)
            for _ in range(2):
                torch.testing.assert_close(compiled(sides[0]), step(sides[1]))
                torch.testing.assert_close(sides[0], sides[1])
