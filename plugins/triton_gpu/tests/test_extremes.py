"""Numbers at the edges of their dtypes: NaN, infinities, both zeros, the least and the greatest.

Beside eager, but where the kernels of a CPU and of CUDA differ: there it is CUDA's, as an H200 with torch 2.11 computes
it, that is written down. In Triton's interpreter there is no fused multiplication and addition, nor the order of zeros
that a GPU's minimum and maximum have, so neither is asked about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import jitney

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
INF, NAN = float("inf"), float("nan")


def floats(dtype: torch.dtype) -> torch.Tensor:
    top = torch.finfo(dtype).max
    some = [0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, 3.0, -7.0, INF, -INF, NAN, top, -top, 100.0]
    return torch.tensor(some, dtype=torch.float64, device=DEVICE).to(dtype)


def integers(dtype: torch.dtype) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    signed = [-1, -2, -3, -7] if limits.min < 0 else []
    return torch.tensor([0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.min, limits.min + 1, *signed]).to(
        DEVICE, dtype
    )


def both(x: torch.Tensor) -> list[torch.Tensor]:
    return [y.contiguous() for y in torch.cartesian_prod(x, x).unbind(1)]


def same(fn: Callable[..., Any], argument_lists: list[list[torch.Tensor]], *, zeros: bool = True) -> None:
    """Compiled, with all arguments in one graph, it gives what eager does: NaN, infinities, the sign of each zero."""

    def each(*lists: list[torch.Tensor]) -> list[torch.Tensor]:
        return [fn(*xs) for xs in lists]

    found = jitney.compile(each, backend="triton_gpu", fullgraph=True)(*argument_lists)
    for xs, made, wanted in zip(argument_lists, found, each(*argument_lists), strict=True):
        torch.testing.assert_close(made, wanted, equal_nan=True, msg=lambda m, d=xs[0].dtype: f"{d}: {m}")
        if zeros and wanted.is_floating_point():
            known = ~wanted.isnan()
            assert torch.equal(made[known].signbit(), wanted[known].signbit()), xs[0].dtype


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "%": lambda x: x % 3,
    "% negative": lambda x: x % -3,
    "% infinity": lambda x: x % INF,
    "fmod": lambda x: torch.fmod(x, 3),
    "fmod infinity": lambda x: torch.fmod(x, INF),
    "//": lambda x: x // -3,
    "// fraction": lambda x: x // 0.5,
    "clamp": lambda x: x.clamp(0, 1),
    "clamp from a negative zero": lambda x: x.clamp(-0.0, 1.0),
    "plus a negative zero": lambda x: x + (-0.0),
    "plus zero": lambda x: x + 0.0,
    "power": lambda x: x**3,
    "root": lambda x: x**0.5,
    "root of the reciprocal": lambda x: x**-0.5,
    "power of one": lambda x: torch.pow(1.0, x),
    "power of minus one": lambda x: torch.pow(-1.0, x),
    "power of infinity": lambda x: torch.pow(INF, x),
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sign": torch.sign,
    "round": torch.round,
    "trunc": torch.trunc,
    "negative": torch.neg,
    "nan_to_num": torch.nan_to_num,
    "softplus": F.softplus,
    "hardtanh": F.hardtanh,
}


@pytest.mark.parametrize("name", UNARY)
def test_of_one_float(name: str) -> None:
    same(UNARY[name], [[floats(dtype)] for dtype in FLOATS])


BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "/": torch.div,
    "//": torch.floor_divide,
    "truncated": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "%": torch.remainder,
    "fmod": torch.fmod,
    "power": torch.pow,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "clamped": lambda a, b: a.clamp(b, b),
    "sum": lambda a, b: torch.add(a, b, alpha=0.5),
    "difference": lambda a, b: torch.sub(a, b, alpha=0.5),
    "turned": lambda a, b: torch.rsub(a, b, alpha=0.5),
    "copysign": torch.copysign,
    "atan2": torch.atan2,
    "heaviside": torch.heaviside,
}
ZEROS_OF_GPUS = ("maximum", "minimum", "fmax", "fmin", "clamped")


@pytest.mark.parametrize("name", BINARY)
def test_of_two_floats(name: str) -> None:
    interpreted = DEVICE == "cpu" and name in ZEROS_OF_GPUS
    lists = [both(floats(dtype)) for dtype in FLOATS]
    if name in ("%", "fmod"):  # of large quotients: below
        lists = [[x[(a / b).isfinite() | ~a.isfinite() | (b == 0)] for x in (a, b)] for a, b in lists]
    same(BINARY[name], lists, zeros=not interpreted)


@pytest.mark.parametrize("name", ["%", "fmod", "//", "truncated", "maximum", "minimum"])
def test_of_two_integers(name: str) -> None:
    """Without division by zero, and of the least by minus one: neither has a value."""
    lists = []
    for dtype in INTEGERS:
        a, b = both(integers(dtype))
        fine = (b != 0) & ~((b == -1) & (a == torch.iinfo(dtype).min))
        lists.append([a[fine].contiguous(), b[fine].contiguous()])
    same(BINARY[name], lists)


@pytest.mark.parametrize("name", ["sum", "difference", "product", "turned", "negative", "shifted"])
def test_integers_wrap_around(name: str) -> None:
    fns: dict[str, Callable[..., torch.Tensor]] = {
        "sum": lambda a, b: torch.add(a, b, alpha=3),
        "difference": lambda a, b: torch.sub(a, b, alpha=2),
        "product": torch.mul,
        "turned": lambda a, b: torch.rsub(a, b, alpha=3),
        "negative": lambda a, b: -a - b,
        "shifted": lambda a, b: (a << 1) + b,
    }
    same(fns[name], [both(integers(dtype)) for dtype in INTEGERS])


@pytest.mark.parametrize("to", [*INTEGERS[2:4], torch.bool, *FLOATS], ids=str)
def test_casts_of_what_fits(to: torch.dtype) -> None:
    edges = [0.0, -0.0, 1.9, -1.9, 127.5, -129.0, 300.0, 32768.0, 65504.0, 65520.0, 1e-8]
    edges += [] if to in INTEGERS else [INF, -INF, NAN, 3e38]
    same(lambda x: x.to(to), [[torch.tensor(edges, dtype=torch.float64, device=DEVICE).to(d)] for d in FLOATS[1:]])
    same(lambda x: x.to(to), [[integers(dtype)] for dtype in INTEGERS])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gelu_of_what_is_infinite_is_what_cuda_gives(dtype: torch.dtype) -> None:
    """A CPU's vectors give NaN for infinity, and infinity for the greatest number."""
    x = torch.tensor([INF, torch.finfo(dtype).max, -0.0], dtype=dtype, device=DEVICE)
    assert torch.equal(jitney.compile(F.gelu, backend="triton_gpu", fullgraph=True)(x), x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("fn", [torch.fmod, torch.remainder], ids=["fmod", "remainder"])
def test_remainders_of_large_quotients_are_exact_as_cudas(fn: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    """A CPU's vectors give NaN where the quotient is infinite."""
    x = torch.tensor([7.0, -7.0, torch.finfo(dtype).max], dtype=dtype, device=DEVICE)
    made = jitney.compile(fn, backend="triton_gpu", fullgraph=True)(x, torch.full_like(x, torch.finfo(dtype).tiny))
    assert made.tolist() == [0.0, 0.0, 0.0] and made.signbit().tolist() == [False, True, False]
