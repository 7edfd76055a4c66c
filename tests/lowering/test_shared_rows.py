"""Few rows of much work are shared by threads of a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering.graphs import lowered

from jitney_lowering import GPU
from jitney_lowering.ir import Kernel
from jitney_lowering.scheduler import schedule


def energies(x: torch.Tensor) -> torch.Tensor:
    """Of each row, of what takes long to compute for an element."""
    return sum((x - x.roll(k, -1)).cos() for k in range(4)).sum(-1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fn", "rows", "length", "shared"),
    [
        (energies, 32, 16384, True),
        (energies, 512, 16384, False),  # rows enough
        (energies, 32, 2048, False),
        (lambda x: x.exp().sum(-1), 32, 16384, False),  # memory takes as long
        (lambda x: x.sum(-1), 32, 65536, True),
    ],
)
def test_rows_are_shared_by_the_work_of_an_element(
    fn: Callable[[torch.Tensor], torch.Tensor], rows: int, length: int, shared: bool
) -> None:
    made = schedule(lowered(fn, torch.randn(rows, length), whole=None).program, policy=GPU)
    kernel = next(item for item in made.items if isinstance(item, Kernel))
    assert bool(kernel.partials) is shared
