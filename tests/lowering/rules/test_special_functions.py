"""Gamma, error and Bessel functions beside eager: as near to float64 and mpmath as eager's, the same at the edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor

import jitney

sp = torch.special
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "digamma": torch.digamma,
    "polygamma_0": lambda x: torch.polygamma(0, x),
    "polygamma_1": lambda x: torch.polygamma(1, x),
    "erfinv": torch.erfinv,
    "erfcx": sp.erfcx,
    "log_ndtr": sp.log_ndtr,
    "i0": sp.i0,
    "i0e": sp.i0e,
    "i1": sp.i1,
    "i1e": sp.i1e,
    "angle": torch.angle,
}
EDGES = [0.0, -0.0, 1.0, -1.0, -2.0, 8.0, -8.0, 9.5, 10.0, 200.0, -200.0, 1e-30, 1e30, math.inf, -math.inf, math.nan,
         1 - 6e-8, 6e-8 - 1, 2.0, -1.5, 1.4616, 0.5, 3e-4]  # fmt: skip


def numbers(name: str) -> Tensor:
    """In float64, exactly those that float32 has."""
    generator = torch.Generator().manual_seed(7)
    spread = torch.randn(2000, generator=generator) * 4
    more = torch.rand(1000, generator=generator) * (2 if name == "erfinv" else 90) - (1 if name == "erfinv" else 0)
    return torch.cat([spread, more, torch.tensor(EDGES)]).double()


def far(found: Tensor, exact: Tensor) -> float:
    """The root of the mean square of errors, each as a part of its value."""
    return float(((found.double() - exact) / exact.abs().clamp_min(1e-3)).square().mean().sqrt())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_beside_eager(name: str, dtype: torch.dtype) -> None:
    function = FUNCTIONS[name]
    x = numbers(name).to(dtype)
    compiled = jitney.compile(function, backend="llvm_cpu", fullgraph=True)
    try:
        eager = function(x)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            compiled(x)
        return
    found = compiled(x)
    torch.testing.assert_close(found.isnan(), eager.isnan())
    endless = eager.isinf() | found.isinf()
    torch.testing.assert_close(found[endless], eager[endless], equal_nan=True)
    plain = eager.isfinite()
    exact = function(x.double())
    # Of float64, eager's digamma is what is off by so much near its poles: see below.
    least = 1e-12 if dtype is torch.float64 else 4 * torch.finfo(dtype).eps
    assert far(found[plain], exact[plain]) <= max(2 * far(eager[plain], exact[plain]), least)


@pytest.mark.parametrize("name", ["digamma", "erfcx", "erfinv", "i0e", "i1e"])
def test_float64_beside_mpmath(name: str) -> None:
    mp = mpmath.mp
    exact = {
        "digamma": mp.digamma,
        "erfinv": mp.erfinv,
        "erfcx": lambda x: mp.exp(x * x) * mp.erfc(x),
        "i0e": lambda x: mp.exp(-x) * mp.besseli(0, x),
        "i1e": lambda x: mp.exp(-x) * mp.besseli(1, x),
    }[name]
    x = numbers(name)
    x = x[(x > 1e-3) & (x < (1 if name == "erfinv" else 30))][::20]
    found = jitney.compile(FUNCTIONS[name], backend="llvm_cpu", fullgraph=True)(x)
    with mpmath.workdps(40):
        wanted = torch.tensor([float(exact(mpmath.mpf(v))) for v in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(found, wanted, rtol=2e-14, atol=2e-15)


@pytest.mark.parametrize("kernel_backend", ["llvm_cpu", "triton_gpu"])
def test_no_whole_operator(kernel_backend: str) -> None:
    """A loss of special functions and its gradient are kernels."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        total = torch.lgamma(x) + torch.digamma(x) * y + torch.special.i0e(y) + torch.erfinv(y / 9)
        return total + torch.ldexp(x, torch.ones(5, dtype=torch.int64, device=x.device)) + torch.angle(-x)

    device = "cuda" if kernel_backend == "triton_gpu" and torch.cuda.is_available() else "cpu"
    x, y = torch.rand(3, 5, device=device) + 0.5, torch.rand(3, 5, device=device) + 0.1
    inputs = [t.clone().requires_grad_() for t in (x, y)]
    others = [t.clone().requires_grad_() for t in (x, y)]
    compiled = jitney.compile(loss, backend=kernel_backend, fullgraph=True)
    explained = str(jitney.explain(loss, backend=kernel_backend)(*inputs))
    assert "as a whole: nothing" in explained
    found, expected = compiled(*inputs), loss(*others)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    for a, b in zip(inputs, others, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("name", ["i1", "i1e"])
def test_signs_of_zeros(name: str) -> None:
    x = torch.tensor([0.0, -0.0])
    found = jitney.compile(FUNCTIONS[name], backend="llvm_cpu", fullgraph=True)(x)
    assert torch.equal(found.signbit(), FUNCTIONS[name](x).signbit())
