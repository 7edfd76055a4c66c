"""Complex numbers: pairs of real ones in loops, two by two in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lowering.graphs import kinds, lowered, trained

from jitney_lowering import schedule
from jitney_lowering.ir import Kernel
from jitney_lowering.policy import CPU, GPU, Policy


def arguments(dtype: torch.dtype = torch.complex64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 6, dtype=dtype), torch.randn(4, 6, dtype=dtype.to_real())


@pytest.mark.parametrize("policy", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_an_operator_reads_is_stored_where_it_reads_it(dynamic: bool, policy: Policy) -> None:
    def fn(z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(z * x * 1j).abs()

    whole = ["view_as_real.default", "complex.default", "_fft_c2c.default", "view_as_real.default"]
    captured = lowered(fn, *arguments(), dynamic=dynamic, policy=policy, whole=whole)
    made = schedule(captured.program, policy=policy)
    names = [item.name if isinstance(item, Kernel) else str(item.target) for item in made.items]
    assert len(names) == 3 and names[1] == "aten._fft_c2c.default"


def test_parts_that_are_stored_are_neighbours_in_kernels() -> None:
    captured = lowered(lambda z, x: z * x, *arguments(), whole=["view_as_real.default", "complex.default"])
    (kernel,) = schedule(captured.program).items
    assert isinstance(kernel, Kernel)
    stores = kernel.body[0].statements
    assert len({s.buffer for s in stores}) == 1 and str(stores[1].index - stores[0].index) == "1"  # type: ignore[union-attr]


def test_a_view_as_complex_is_no_copy() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.ifft(torch.view_as_complex(x))

    lowered(fn, torch.randn(4, 6, 2), whole=["view_as_complex.default", "_fft_c2c.default"])


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_complex32_runs_as_a_whole() -> None:
    captured = lowered(lambda z: z.clone(), torch.zeros(3, dtype=torch.complex32), whole=None, exact=True)
    assert kinds(captured.program) == ["clone.default"]


def test_formulas_that_nobody_has_written_run_as_a_whole() -> None:
    captured = lowered(lambda z, x: (z.log(), z.sinh() * x), *arguments(), whole=None)
    assert {"log.default", "sinh.default"} <= {*kinds(captured.program)}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_gradients(dtype: torch.dtype) -> None:
    def fn(z: torch.Tensor, x: torch.Tensor) -> Any:
        return (z.abs() * x + (z * z.conj()).real.sum(1, keepdim=True)).sin()

    z, x = arguments(dtype)
    trained(fn, z.requires_grad_(), x.requires_grad_(), whole=None)


def test_a_conjugate_that_the_backward_gets() -> None:
    """It is saved as it is, conjugated lazily."""

    def fn(z: torch.Tensor) -> torch.Tensor:
        return z * z.sum()

    trained(fn, torch.randn(3, 4, dtype=torch.complex64, requires_grad=True), whole=None)
