"""Floats of 8 bits beside eager, for every backend that makes kernels.

A folder of tests that imports them (``from backend_float8 import *``) has the fixtures that they take: ``backend``, a
name, and ``device``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from backend_programs import On, on  # noqa: F401 (fixtures)

import jitney

KINDS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
INF, NAN = float("inf"), float("nan")


def codes(dtype: torch.dtype) -> torch.Tensor:
    """Every number of the kind."""
    return torch.arange(256, dtype=torch.uint8).view(dtype)


def near(dtype: torch.dtype) -> torch.Tensor:
    """Float32 numbers where rounding turns, and beside that; very large ones, very small ones, special ones."""
    finite = codes(dtype).float()
    finite = finite[finite.isfinite()].unique()
    edges = [finite, (finite[1:] + finite[:-1]) / 2, finite * 1.0625, finite * 1e-3]
    edges += [torch.tensor([464.0, 480.0, 248.0, 61440.0, 65536.0, 1e9, 3e38, 1e-10, 1e-40, INF, NAN, 0.0])]
    exact = torch.cat(edges)
    up, down = (torch.nextafter(exact, torch.full_like(exact, end)) for end in (INF, -INF))
    some = torch.arange(0, 2**32, 131_071, dtype=torch.int64).to(torch.int32).view(torch.float32)
    return torch.cat([exact, -exact, up, down, -up, -down, some])


def same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Equal codes, but for the sign of nan; equal numbers."""
    assert (got.dtype, got.shape, got.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
    if got.dtype in KINDS:
        both = got.float().isnan() & wanted.float().isnan()
        assert bool(((got.view(torch.uint8) == wanted.view(torch.uint8)) | both).all())
    else:
        torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
        if got.is_floating_point():
            assert torch.equal(torch.signbit(got[~got.isnan()]), torch.signbit(wanted[~wanted.isnan()]))


def compare(fn: Callable[..., Any], backend: str, *args: torch.Tensor, dynamic: bool = False) -> None:
    wanted, got = fn(*args), jitney.compile(fn, backend=backend, dynamic=dynamic, fullgraph=True)(*args)
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, wanted)), strict=True):
        same(one, other)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_every_code_is_decoded(dtype: torch.dtype, backend: str, on: On) -> None:  # noqa: F811
    compare(lambda x: tuple(x.to(d) for d in FLOATS), backend, on(codes(dtype)))
    compare(lambda x: (x.float() * 1.5, x.bool(), x.view(torch.uint8) + 1), backend, on(codes(dtype)))
    number = codes(dtype)
    compare(lambda x: (x.to(torch.int64), x.int()), backend, on(number[number.float().isfinite()]))


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_float32_is_rounded(dtype: torch.dtype, backend: str, on: On) -> None:  # noqa: F811
    compare(lambda x: x.to(dtype), backend, on(near(dtype)))
    compare(lambda x: x.to(dtype).float() * 2, backend, on(near(dtype)))


@pytest.mark.parametrize("source", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_every_half_is_rounded(dtype: torch.dtype, source: torch.dtype, backend: str, on: On) -> None:  # noqa: F811
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(source)
    compare(lambda x: x.to(dtype), backend, on(every))


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_other_dtypes_are_converted(dtype: torch.dtype, backend: str, on: On) -> None:  # noqa: F811
    compare(lambda x: x.to(dtype), backend, on(near(dtype).double() * (1 + 1e-9)))
    integers = torch.tensor([0, 1, -1, 3, 17, 19, 100, -127, 500, 70_000, 2**40, -(2**62)])
    for kind in (torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool):
        compare(lambda x: x.to(dtype), backend, on(integers.to(kind)))
    for other in KINDS:
        compare(lambda x, other=other: x.to(other), backend, on(codes(dtype)))


def filled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:3] = 1
    x[3, ::2] = y[0, ::2]
    return x


def scaled(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    scale = x.float().abs().amax(-1, keepdim=True) / 100
    return x.float() / scale, (y.float() * scale).to(x.dtype)


def attended(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float() * 0.5, -1).to(y.dtype)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "filled": filled,
    "scaled": scaled,
    "written": lambda x, y: x.clone().copy_(y.float() * 2),
    "joined": lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y]), torch.cat([x, (y.float() * 2).to(x.dtype)])),
    "chosen": lambda x, y: torch.where(x.float() > y.float(), x, y),
    "turned": lambda x, y: (x.t().contiguous(), x.repeat(2, 1), x[1:, ::3].clone()),
    "padded": lambda x, y: torch.nn.functional.pad(x, (1, 2)),
    "constants": lambda x, y: (torch.full_like(x, 1.3), torch.zeros_like(y), x.new_full((3,), -2.0)),
    "summed": lambda x, y: x.float().square().sum(-1).to(torch.float16),
    "to halves": lambda x, y: (x.to(torch.bfloat16) * y.to(torch.bfloat16), x.half() + 1),
    "probabilities": attended,
    "bits": lambda x, y: (x.view(torch.int8) ^ 1).view(x.dtype),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", KINDS[:3], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, dtype: torch.dtype, dynamic: bool, backend: str, on: On) -> None:  # noqa: F811
    for rows in (5, 8):
        torch.manual_seed(rows)
        x, y = on(((torch.randn(rows, 20) * 3).to(dtype), torch.randn(rows, 20).to(dtype)))
        compare(PROGRAMS[name], backend, x, y, dynamic=dynamic)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_what_eager_refuses_is_refused(dtype: torch.dtype, backend: str, on: On) -> None:  # noqa: F811
    x = on(torch.ones(4)).to(dtype)
    for fn in (lambda x: x + x, lambda x: x * 2.0, lambda x: x.clone().fill_(1e9), lambda x: x.sum()):
        with pytest.raises((RuntimeError, NotImplementedError)):
            fn(x)
        with pytest.raises((RuntimeError, NotImplementedError)):
            jitney.compile(fn, backend=backend)(x)
