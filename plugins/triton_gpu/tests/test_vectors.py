"""Products of a vector and a matrix that is computed, or large."""

from __future__ import annotations

import pytest
import torch
from backend_vectors import *  # noqa: F403

import jitney
from jitney_triton_gpu.code import Function


@pytest.mark.parametrize("by_columns", [False, True])
def test_a_large_matrix_by_a_vector_goes_on_in_its_kernel(
    by_columns: bool, compiled_functions: list[Function], device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(1100, 600, generator=generator).to(device, torch.bfloat16)
    vector = torch.randn(1100 if by_columns else 600, generator=generator).to(device, torch.bfloat16)

    def fn(a: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid((a.T if by_columns else a) @ v) * 2

    found = jitney.compile(fn, backend="triton_gpu", fullgraph=True)(matrix, vector)
    wanted = fn(matrix.double(), vector.double())
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=2e-2)
    assert any("tl.sum" in f.text for f in compiled_functions), "the product is no operator of a library"
