"""Integers that kernels compute with, beside eager: Python's have no end, and a GPU's indices have 32 bits.

For folders of tests that import it (``from backend_integers import *``), as ``backend_programs``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from backend_programs import On, on  # noqa: F401 (a fixture)

import jitney

Program = Callable[..., Any]


def outcome(fn: Program, *args: Any) -> Any:
    """What it returns, or the class of what it raises: messages are eager's where eager raises."""
    try:
        return fn(*args)
    except OverflowError as error:
        return str(error)


OF_A_NUMBER: dict[str, Program] = {
    "a square": lambda x, n: x * (n * n),
    "a rest of a square": lambda x, n: x * (n * n % 7),
    "a quotient of a power": lambda x, n: x + n**3 // (n * n + 1),
    "itself": lambda x, n: x + torch.full_like(x, n),
    "a shift": lambda x, n: x.roll(n % 5),
    "a difference of squares": lambda x, n: x * (n * n - (n - 1) * (n - 1)),
    "filled with a square": lambda x, n: x + torch.full_like(x, n * n),
    "compared with a square": lambda x, n: torch.where(x < n * n, x, -x),
    "a shift of a square": lambda x, n: x.roll(n * n % 5),
    "in a float": lambda x, n: x * (n * n / 3),
    "times a float": lambda x, n: x * (n * n * n * n * 0.5),
    "and a float": lambda x, n: x + (0.25 - n * n * n),
}


@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_numbers_that_grow_out_of_their_bits(backend: str, on: On, name: str) -> None:  # noqa: F811
    fn = OF_A_NUMBER[name]
    x = on(torch.arange(5, dtype=torch.float64))
    compiled = jitney.compile(fn, backend=backend)
    for n in (2, 3, 5, -4, 46341, 2**31 - 1, -(2**31), 10**11, 2**62, 2**63 - 1, -(2**63), 10**30, 7):
        expected = outcome(fn, x, n)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"(.|\n)*more than 64 bits")
            found = outcome(compiled, x, n)
        if isinstance(expected, str):
            assert found == expected, n
        else:
            torch.testing.assert_close(found, expected, rtol=1e-15, atol=0.0, msg=lambda text, n=n: f"n = {n}: {text}")


OF_SIZES: dict[str, Program] = {
    "a square": lambda x: x * (x.shape[0] * x.shape[0]),
    "a triangle": lambda x: x * (x.shape[0] * (x.shape[0] - 1) // 2),
    "a power": lambda x: x / x.shape[0] ** 3 + x.shape[0] ** 2,
    "a range of large steps": lambda x: x + torch.arange(x.shape[0], device=x.device) * 100_000,
    "a range up to a square": lambda x: x + torch.arange(0, x.shape[0] ** 2, x.shape[0], device=x.device),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", OF_SIZES)
def test_sizes_whose_products_leave_32_bits(backend: str, on: On, name: str, dynamic: bool) -> None:  # noqa: F811
    fn = OF_SIZES[name]
    compiled = jitney.compile(fn, backend=backend, dynamic=dynamic)
    for size in (3, 50_000):
        x = on(torch.arange(size, dtype=torch.float64))
        torch.testing.assert_close(compiled(x), fn(x), rtol=1e-15, atol=0.0)


def test_a_range_with_steps_beyond_32_bits(backend: str, on: On) -> None:  # noqa: F811
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(-(10**13), 10**13, 10**11, device=x.device)

    x = on(torch.zeros(200, dtype=torch.int64))
    assert torch.equal(jitney.compile(fn, backend=backend)(x), fn(x))


def test_a_size_to_the_third_power_beyond_64_bits(backend: str, on: On) -> None:  # noqa: F811
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + x.shape[0] ** 3 // 7

    compiled = jitney.compile(fn, backend=backend, dynamic=True)
    for size in (2, 3_000_000):
        x = on(torch.zeros(1).expand(size))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"(.|\n)*more than 64 bits")
            torch.testing.assert_close(compiled(x), fn(x))
