"""Kernels over flattened tensors whose dimensions are told apart by division."""

from __future__ import annotations

import pytest
import torch
from flattened_programs import FLATTENED

import jitney


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FLATTENED)
def test_results_are_eagers(name: str, threads: int) -> None:
    fn, make = FLATTENED[name]
    args = make()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.testing.assert_close(jitney.compile(fn, backend="llvm_cpu", fullgraph=True)(*args), fn(*args))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_of_many_elements_at_few_places_come_in_eagers_order(threads: int) -> None:
    def fn(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        index = (x * 63).floor().long().clamp(0, 62)
        return torch.zeros(*x.shape[:-1], 64).scatter_add(-1, index, value * 2)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = jitney.compile(fn, backend="llvm_cpu", fullgraph=True)
        for shape in ((5000,), (7, 600)):
            x, value = torch.rand(shape), torch.randn(shape) * 1e4
            assert torch.equal(compiled(x, value), fn(x, value))
    finally:
        torch.set_num_threads(before)
