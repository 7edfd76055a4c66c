"""Tensors made of numbers and positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lowering.graphs import kinds, lowered

MADE: dict[str, Callable[[torch.Tensor], Any]] = {
    "zeros": lambda x: (torch.zeros(2, 3), torch.zeros_like(x), x.new_zeros(4)),
    "ones": lambda x: (torch.ones(2, 3, dtype=torch.int32), torch.ones_like(x, dtype=torch.bool), x.new_ones(4)),
    "full": lambda x: (torch.full((2,), 7), torch.full_like(x, -1.5), x.new_full((3,), True)),
    "full of an int": lambda x: torch.full((2,), 300, dtype=torch.int16),
    "scalar": lambda x: torch.scalar_tensor(2.5),
    "arange": lambda x: (torch.arange(5), torch.arange(2, 9, 3), torch.arange(5, 0, -2), torch.arange(0)),
    "arange of floats": lambda x: (torch.arange(0.0, 1.0, 0.1), torch.arange(5, dtype=torch.float64)),
    "arange of whole numbers": lambda x: (
        torch.arange(-3.0, 5.0, 2.0),
        torch.arange(7.0, -9.0, -4.0, dtype=torch.float16),
        torch.arange(2.0**25 - 3, 2.0**25 + 3),
        torch.arange(300, dtype=torch.bfloat16),
    ),
    "arange of numbers beyond those of integers": lambda x: (
        torch.arange(2.0**70, 2.0**70 + 2.0**64, 2.0**60),
        torch.arange(0.0, 2.0**80, 2.0**78, dtype=torch.float64),
    ),
    "linspace": lambda x: (torch.linspace(-1, 2, 7), torch.linspace(0, 1, 4, dtype=torch.float64)),
    "eye": lambda x: (torch.eye(3), torch.eye(3, 5, dtype=torch.int64)),
    "fill": lambda x: (torch.fill(x, 2.5), torch.fill(x, x[0, 0])),
    "copy": lambda x: torch.ops.aten.copy(x, x[0].double()),
}


@pytest.mark.parametrize("name", MADE)
def test_made_of_numbers(name: str) -> None:
    lowered(lambda x: (MADE[name](x), x + 1), torch.randn(3, 4))


def test_sizes_become_elements() -> None:
    def fn(x: torch.Tensor) -> Any:
        n, m = x.shape
        return torch.arange(n), torch.full((m,), n), torch.arange(m, n + m), torch.zeros(n, 2), torch.eye(n)

    lowered(fn, torch.randn(5, 7), dynamic=True)


def test_a_mask_of_positions_is_never_stored() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(5, 5, dtype=torch.bool).tril()
        return x.masked_fill(~mask, float("-inf"))

    captured = lowered(fn, torch.randn(2, 5, 5))
    assert kinds(captured.program) == ["pointwise"]


def test_what_is_empty_may_hold_anything() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).copy_(x) + torch.empty(3, 4).fill_(2)

    lowered(fn, torch.randn(3, 4))


def test_memory_with_holes_runs_as_a_whole() -> None:
    lowered(lambda x: torch.empty_strided((2, 2), (4, 1)).zero_() + x, torch.randn(2, 2), whole=None)
