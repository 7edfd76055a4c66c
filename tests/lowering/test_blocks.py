"""Rows of few elements are gone through in blocks, if that is faster; the numbers are the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering.graphs import lowered
from row_programs import STEPS, check_chain, heavy

from jitney_lowering import CPU
from jitney_lowering.ir import Kernel
from jitney_lowering.scheduler import schedule

# The shortest rows are written out otherwise.
BLOCKS = replace(CPU, unrolled_row=0, scratch_row=0, row_lanes=False)


def innermost(fn: Callable[..., torch.Tensor], *args: torch.Tensor, short_row: int = CPU.short_row) -> list[int | None]:
    """Of each nest of the only kernel, how often its innermost loop goes round; 1 without loops."""
    program = lowered(fn, *args, policy=BLOCKS).program
    (kernel,) = schedule(program, policy=replace(BLOCKS, short_row=short_row)).items
    assert isinstance(kernel, Kernel)
    return [nest.loops[-1].size.value if nest.loops else 1 for nest in kernel.body]


def test_vectors_go_along_short_rows() -> None:
    assert set(innermost(heavy, torch.randn(1000, 3))) == {250}
    assert set(innermost(heavy, torch.randn(4, 1000, 3))) == {250}


@pytest.mark.parametrize(
    "size",
    [
        (1000, 16),  # a row fills vectors
        (8, 3),  # too few rows
        (997, 3),  # rows that blocks of one size do not divide
    ],
)
def test_other_rows_are_gone_through_one_by_one(size: tuple[int, ...]) -> None:
    assert set(innermost(heavy, torch.randn(size))) <= {1, size[-1]}


def test_rows_stay_where_blocks_would_be_slower() -> None:
    light = torch.randn(1000, 8)
    assert set(innermost(lambda x: x / x.norm(dim=1, keepdim=True), light)) <= {1, 8}
    assert set(innermost(heavy, torch.randn(1000, 3), short_row=0)) <= {1, 3}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([*STEPS]), min_size=1, max_size=5),
    st.sampled_from([(64,), (500,), (67,), (4, 160), (3, 33)]),
    st.integers(2, 15),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    st.booleans(),
)
def test_any_chain_gives_what_eager_gives(
    names: list[str], rows: tuple[int, ...], length: int, dtype: torch.dtype, gradient: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(*rows, length).to(dtype)
    check_chain(names, x, "llvm_cpu", gradient=gradient and dtype is not torch.bfloat16)
