"""Complex tensors in kernels, beside eager, for every backend that makes kernels.

A folder of tests that imports them (``from backend_complex import *``) has the fixtures that they take: ``backend``, a
name, and ``device``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from backend_programs import On, on  # noqa: F401 (fixtures)

import jitney

pad = torch.nn.functional.pad
Program = Callable[..., Any]
DTYPES = {torch.complex64: torch.float32, torch.complex128: torch.float64}

# Of z and w, complex, and x, real: all of one size. Of these ``whole`` operators run as a whole.
POINTWISE: dict[str, Program] = {
    "sums": lambda z, w, x: (z + w, z - w, z + x, x - z, z + 2, 3.5 - z, z + 1j, torch.add(z, w, alpha=2), -z),
    "sums with a factor": lambda z, w, x: (torch.add(z, w, alpha=1j), torch.sub(z, x, alpha=3), torch.rsub(z, w)),
    "products": lambda z, w, x: (z * w, z * x, x * z, z * 2.5, z * 1j, (1 - 2j) * z, z * z.conj(), z.square()),
    "quotients": lambda z, w, x: (z / w, z / x, x / z, z / 2, z / (3 - 1j), 1 / z, z.reciprocal(), 2j / w),
    "powers": lambda z, w, x: (z**2, z**3, z**-1, z**1, z**0),
    "lengths and angles": lambda z, w, x: (z.abs(), z.angle(), z.sgn(), torch.polar(x.abs(), x), torch.polar(x, x)),
    "exponentials": lambda z, w, x: (z.exp(), torch.exp(1j * x), (z * -0.5j).exp()),
    "parts": lambda z, w, x: (z.real * 2, z.imag + x, torch.view_as_real(z) * 3, torch.complex(x, x + 1)),
    "conjugates": lambda z, w, x: ((z.conj() * w).sum(0), z.conj().imag + 1, z.conj().conj() + w, z.conj_physical()),
    "comparisons": lambda z, w, x: (z == w, z != z.clone(), z == 1, torch.isnan(z), torch.isinf(z), z == x),
    "choices": lambda z, w, x: (torch.where(x > 0, z, w), z.masked_fill(x > 0, 2j), torch.where(x > 0, z, 0)),
    "fused": lambda z, w, x: torch.addcmul(z, w, z, value=0.5) + torch.addcdiv(w, z, w.abs() + 1j, value=2),
    "conversions": lambda z, w, x: (x.to(z.dtype) * 1j, z.to(torch.complex64), z.to(torch.complex128), z + x.double()),
}  # fmt: skip


def rotary(z: torch.Tensor, w: torch.Tensor, x: torch.Tensor) -> Any:
    """Rotary embeddings."""
    pairs = torch.view_as_complex(torch.stack([x, x * 2], -1))
    turned = torch.view_as_real(pairs[:, ::2] * torch.polar(torch.ones_like(x), x)[:, ::2]).flatten(1)
    return turned.to(torch.float32)


def written(z: torch.Tensor, w: torch.Tensor, x: torch.Tensor) -> Any:
    """In place."""
    z.mul_(w).add_(1j)
    z[1:] = w[1:] * 2
    z.real.add_(x)
    w[:, 0] = 0
    return z.abs()


def spectral(z: torch.Tensor, w: torch.Tensor, x: torch.Tensor) -> Any:
    """Filters in the frequencies."""
    spectrum = torch.fft.fft2(z * x)
    damped = spectrum * torch.exp(-1j * x * 0.1) / (1 + x * x)
    return torch.fft.ifft2(damped), torch.fft.irfft(torch.fft.rfft(x) * w[:, : x.shape[1] // 2 + 1]), damped.abs()


def shared(z: torch.Tensor, w: torch.Tensor, x: torch.Tensor) -> Any:
    """A value that kernels, operators and the caller read."""
    y = z * w + x
    return y, torch.fft.fft(y), y.abs().sum(), torch.view_as_real(y), y.real, y.t().contiguous()


def picked_numbers(z: torch.Tensor, w: torch.Tensor, x: torch.Tensor) -> Any:
    """Real and imaginary parts at places that are computed."""
    numbers, conjugated = torch.view_as_real(z * w), torch.view_as_real(z.conj().clone())
    part, places = (x[0] > 0).long(), (x * 20).long().abs() % x.shape[1]
    return (
        torch.take(numbers, places), numbers.flatten(1)[:, places[0]], numbers.index_select(2, part),
        numbers.gather(2, (x > 0).long()[..., None].expand(*x.shape, 2)), conjugated[..., part], numbers + 1, z * w,
    )  # fmt: skip


MOVED: dict[str, Program] = {
    "views": lambda z, w, x: (z.t() * w.t(), z[1:, ::2] + 1j, z.unsqueeze(1).expand(-1, 3, -1) * 2, z.flatten() * 2),
    "views as results": lambda z, w, x: ((z * 2).t(), (z * w)[1:], (z * w).unsqueeze(0), z[..., 1] * 1),
    "lazy results": lambda z, w, x: ((z * w).conj(), (z * w).conj().t(), (z * w).conj().imag, (z * 2).mH),
    "copies": lambda z, w, x: (z.t().contiguous(), z.clone(), z.roll(1, 0) * w, z.flip(1) + w, z.repeat(2, 1)),
    "joined": lambda z, w, x: (torch.cat([z, w * 2], 1), torch.stack([z, w], -1), torch.cat([z, x])),
    "many joined": lambda z, w, x: torch.cat([z * x] * 5) + 1j,
    "padded": lambda z, w, x: (pad(z * 2, (1, 2)), pad(z, (-1, 2, 3, 0), value=2.0)),
    "filled": lambda z, w, x: (torch.zeros_like(z) + w, torch.ones_like(z) * z, torch.full_like(z, 1 - 2j)),
    "picked": lambda z, w, x: (z[torch.tensor([2, 0], device=z.device)], z.gather(1, torch.zeros_like(x).long()) * w),
    "picked numbers": picked_numbers,
    "triangles": lambda z, w, x: (z.tril(), (z * w).triu(1), torch.diag_embed(z[0] * 2)),
    "reduced": lambda z, w, x: (z.sum(), z.sum(0), (z * w).sum(1, keepdim=True), z.mean(), z.mean(1), z.norm()),
    "reduced numbers": lambda z, w, x: ((torch.view_as_real(z) - torch.view_as_real(w)).pow(2).mean(), z.abs().amax(1)),
    "scattered slices": lambda z, w, x: (z.slice_scatter(w[:, 1:3] * 2, 1, 1, 3), z.select_scatter(w[0], 0, 1)),
    "shifted": lambda z, w, x: (torch.fft.fftshift(z * w), torch.fft.ifftshift(z, 1) * 2),
    "products of matrices": lambda z, w, x: ((z * 2) @ (w.t() + 1j), z @ w.mH, (x @ x.t()).to(z.dtype) * 1j),
    "scans": lambda z, w, x: ((z * 2).cumsum(1), (z * w).cumsum(0) + 1),
    "rotary": rotary,
    "written": written,
    "spectral": spectral,
    "shared": shared,
    "no elements": lambda z, w, x: (z[:0] * w[:0], torch.cat([z[:0], w]), z[:, :0].sum(1)),
    "single numbers": lambda z, w, x: (z[0, 0] * w[1, 1], z[0, 0].abs(), torch.view_as_real(z[0, 0] * 2), z * z.sum()),
}  # fmt: skip
PROGRAMS = POINTWISE | MOVED


def arguments(dtype: torch.dtype, rows: int, columns: int) -> list[torch.Tensor]:
    torch.manual_seed(rows)
    z, w = (torch.randn(rows, columns, dtype=dtype) for _ in range(2))
    return [z, w, torch.randn(rows, columns, dtype=DTYPES[dtype])]


def assert_alike(got: Any, wanted: Any, **limits: float) -> None:
    """Values, dtypes, strides, and whether they are conjugated or negated lazily."""
    leaves = [torch.utils._pytree.tree_leaves(results) for results in (got, wanted)]
    for one, other in zip(*leaves, strict=True):
        facts = [(t.dtype, t.shape, t.is_conj(), t.is_neg()) for t in (one, other)]
        assert facts[0] == facts[1]
        if one.numel():
            pairs = zip(one.shape, one.stride(), other.stride(), strict=True)
            assert all(a == b for n, a, b in pairs if n != 1), (one.stride(), other.stride())
        torch.testing.assert_close(*map(numbers, (one, other)), equal_nan=True, **limits)


def numbers(t: torch.Tensor) -> torch.Tensor:
    """Parts of complex elements one by one: where one is infinite, ``assert_close`` does not compare the other."""
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_complex_numbers_as_in_eager(name: str, dtype: torch.dtype, dynamic: bool, backend: str, on: On) -> None:  # noqa: F811
    compiled = jitney.compile(PROGRAMS[name], backend=backend, dynamic=dynamic, fullgraph=True)
    for rows, columns in ((6, 8), (5, 10)):
        mine = on(arguments(dtype, rows, columns))
        theirs = [t.clone() for t in mine]
        wanted, got = PROGRAMS[name](*mine), compiled(*theirs)
        assert_alike((got, theirs), (wanted, mine))


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"lengths and angles"}))  # angles lie as no stand-in says
def test_strided_complex_arguments(name: str, backend: str, on: On) -> None:  # noqa: F811
    if name == "spectral" and on(arguments(torch.complex64, 1, 1))[0].is_cuda:
        pytest.skip("what cuFFT makes of strided numbers lies as no stand-in says")
    compiled = jitney.compile(PROGRAMS[name], backend=backend, fullgraph=True)
    results = []
    for run in (compiled, PROGRAMS[name]):
        z, w, x = on(arguments(torch.complex64, 8, 12))
        given = (z.t()[2:, 1::2], torch.stack([w, w], -1)[:6, :4, 1].t().t()[:4].repeat(3, 1)[:10, :4], x[:4, 2:].t())
        results.append((run(*given), given))
    assert_alike(*results)


GRADIENTS = (
    "sums", "products", "quotients", "powers", "lengths and angles", "exponentials", "parts", "conjugates", "choices",
    "fused", "views", "copies", "joined", "padded", "reduced", "reduced numbers", "shifted",
    "products of matrices", "rotary", "spectral", "shared", "single numbers", "triangles", "picked numbers",
)  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_complex_numbers_are_eagers(name: str, backend: str, on: On) -> None:  # noqa: F811
    args = on(arguments(torch.complex64, 6, 8))
    found = []
    for run in (jitney.compile(PROGRAMS[name], backend=backend, fullgraph=True), PROGRAMS[name]):
        leaves = [a.clone().requires_grad_() for a in args]
        made = [t for t in torch.utils._pytree.tree_leaves(run(*leaves)) if t.requires_grad]
        tangents = [torch.linspace(-1, 2, t.numel(), device=t.device).reshape(t.shape).to(t.dtype) * 2 for t in made]
        found.append(torch.autograd.grad(made, leaves, tangents, allow_unused=True))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_tangents_may_be_conjugated_or_negated_lazily(backend: str, on: On) -> None:  # noqa: F811
    def program(z: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return z * w + z.conj(), z.abs()

    compiled = jitney.compile(program, backend=backend)
    z, w, x = on(arguments(torch.complex64, 6, 8))
    for number, length in ((w, x), (w.conj(), x), (w, torch._neg_view(x)), (w.conj(), torch._neg_view(x)), (w, x)):
        found = []
        for run in (compiled, program):
            leaves = [t.clone().requires_grad_() for t in (z, w)]
            found.append(torch.autograd.grad(run(*leaves), leaves, (number, length)))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


# Eager multiplies what it adds by 1, all four products of parts: what is infinite becomes nan there, and not here.
ADDING = ("sums", "sums with a factor", "conjugates", "fused", "conversions")
SPECIAL = (0.0, -0.0, 1.0, -2.5, 1e30, 3e38, 88.5, math.inf, -math.inf, math.nan)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*POINTWISE])
def test_infinities_and_what_is_no_number(name: str, backend: str, on: On) -> None:  # noqa: F811
    every = torch.tensor([complex(*pair) for pair in itertools.product(SPECIAL, repeat=2)], dtype=torch.complex64)
    size = (len(every), len(every))
    z, w = every[:, None].expand(size).contiguous(), every.expand(size).contiguous()
    args = on([z, w, w.imag.contiguous()])
    if args[0].is_cuda and name in ("products", "powers", "fused"):
        pytest.skip("what is left of products that are too large depends on what each compiler contracts")
    got, wanted = jitney.compile(POINTWISE[name], backend=backend, fullgraph=True)(*args), POINTWISE[name](*args)
    if name in ADDING:
        got, wanted = (torch.utils._pytree.tree_leaves(results) for results in (got, wanted))
        got, wanted = ([*map(numbers, results)] for results in (got, wanted))
        got = [torch.where(b.isnan(), b, a) if b.is_floating_point() else a for a, b in zip(got, wanted, strict=True)]
    assert_alike(got, wanted)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"lazy results", "products of matrices", "spectral", "shared",
                                                           "scans", "written"}))  # fmt: skip
def test_nothing_is_left_to_operators(name: str, backend: str, on: On) -> None:  # noqa: F811
    report = jitney.explain(PROGRAMS[name], backend=backend)(*on(arguments(torch.complex64, 6, 8)))
    assert "as a whole: nothing" in str(report)
