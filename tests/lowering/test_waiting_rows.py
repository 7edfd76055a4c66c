"""Rows of a GPU whose threads wait for each other: where they are long and many, or there is little in all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering.graphs import lowered

from jitney_lowering import GPU
from jitney_lowering.ir import Kernel
from jitney_lowering.scheduler import schedule


def shrinking(x: torch.Tensor) -> torch.Tensor:
    """A tree: every level is of its neighbours in the level before, and too much work to be computed again."""
    for _ in range(4):
        x = torch.maximum(x[:, 1:].exp().sin(), x[:, :-1].cos().exp())
    return x


@pytest.mark.parametrize(
    ("fn", "rows", "length", "waits"),
    [
        (shrinking, 20000, 60, False),
        (shrinking, 1000, 60, True),  # a kernel for each level would take as long to launch
        (shrinking, 1024, 1024, True),
        (shrinking, 400, 4096, False),
    ],
)
def test_rows_wait_where_other_kernels_are_no_faster(
    fn: Callable[[torch.Tensor], torch.Tensor], rows: int, length: int, waits: bool
) -> None:
    made = schedule(lowered(fn, torch.randn(rows, length), whole=None).program, policy=GPU)
    kernels = [item for item in made.items if isinstance(item, Kernel)]
    assert any(kernel.scratch for kernel in kernels) is waits


def test_sums_over_rows_and_over_some_of_a_rows_elements_are_two_kernels() -> None:
    """No backend's code tells apart which of a row's elements go to one place, and which to others."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        centred = x - x.mean((1, 2), keepdim=True)
        return centred, centred.sum((0, 2))

    made = schedule(lowered(fn, torch.randn(300, 6, 40), whole=None).program, policy=GPU)
    kernels = [item for item in made.items if isinstance(item, Kernel)]
    assert len(kernels) == 2 and [bool(kernel.partials) for kernel in kernels] == [False, True]


def test_operators_that_are_set_apart_have_kernels_of_their_own() -> None:
    program = lowered(lambda x: (x.exp() * 2).sum(-1).log(), torch.randn(40, 50), whole=None).program
    together = [item for item in schedule(program, policy=GPU).items if isinstance(item, Kernel)]
    nodes = {node for item in together for node in item.nodes}
    apart = [item for item in schedule(program, policy=GPU, apart=nodes).items if isinstance(item, Kernel)]
    assert len(apart) > len(together)
