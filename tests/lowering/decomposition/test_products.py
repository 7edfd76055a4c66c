"""Products of vectors: sums on a CPU, with numbers as near to float64 as eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering.graphs import lowered, trained

import jitney

PRODUCTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "dot": lambda a, b: torch.dot(a[0], b),
    "vdot": lambda a, b: torch.vdot(a[:, 0], b),
    "mv": lambda a, b: a @ b,
    "mv of columns": lambda a, b: a.t() @ b,
    "addmv": lambda a, b: torch.addmv(b, a, a[0], beta=0.5, alpha=2.0),
    "addmv of nothing": lambda a, b: torch.addmv(b * float("nan"), a, a[0], beta=0),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_vectors_are_sums(name: str, dynamic: bool) -> None:
    a, b = torch.randn(70, 70), torch.randn(70)
    lowered(PRODUCTS[name], a, b, whole=[], dynamic=dynamic)
    if "nothing" not in name:
        trained(PRODUCTS[name], a.requires_grad_(), b.requires_grad_(), whole=None)


@pytest.mark.parametrize("length", [1, 17, 1000, 100_000])
def test_long_ones_are_as_near_to_float64_as_eager_s(length: int) -> None:
    a, b = torch.randn(64, length), torch.randn(length)

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cat([a @ b, torch.dot(a[0], b)[None]])

    exact = fn(a.double(), b.double())
    own, eager = ((run(a, b).double() - exact).norm().item() for run in (jitney.compile(fn, backend="llvm_cpu"), fn))
    assert own <= 2 * eager + 1e-6


@pytest.mark.parametrize("fn", [PRODUCTS["mv"], PRODUCTS["dot"]])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64], ids=str)
def test_products_of_other_types_are_left_to_libraries(fn: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    lowered(fn, torch.ones(5, 5).to(dtype), torch.ones(5).to(dtype), whole=None)
    name = "mv.default" if fn is PRODUCTS["mv"] else "dot.default"
    lowered(fn, torch.ones(5, 5).to(dtype), torch.ones(5).to(dtype), whole=[name])


def test_products_of_nothing() -> None:
    lowered(PRODUCTS["mv"], torch.ones(0, 0), torch.ones(0), whole=None)
    lowered(lambda a, b: a @ b, torch.ones(3, 0), torch.ones(0), whole=None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_large_matrices_of_halves_by_one_row_are_sums(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, w, b).relu()

    x, w, b = torch.randn(1, 520), torch.randn(1100, 520), torch.randn(1100)
    given = [t.to(dtype) for t in (x, w, b)]
    lowered(fn, *given, whole=[] if dtype is not torch.float32 else None)
    own, eager, exact = jitney.compile(fn, backend="llvm_cpu")(*given), fn(*given), fn(*(t.double() for t in given))
    assert (own - exact).abs().max() <= 1.5 * (eager - exact).abs().max()
