"""Halves beside eager, to the last bit: what is rounded before an operator computes, and what is not."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("jax")

import jitney  # noqa: E402

OPERATORS = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: torch.div(x, y, rounding_mode="floor"),
    lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    lambda x, y: x % y,
    lambda x, y: x > y,
    lambda x, y: x == y,
]
OTHERS = [0.3137, 2049, torch.tensor(0.3137), torch.tensor([2049]), torch.tensor(0.3137, dtype=torch.float64)]


def same(program, *arguments):
    """Compiled, the program gives eager's numbers exactly."""
    found, right = jitney.compile(program, backend="xla", fullgraph=True)(*arguments), program(*arguments)
    torch.testing.assert_close(found, right, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_operand_of_another_dtype_is_rounded_where_eager_rounds_it(dtype):
    torch.manual_seed(0)
    x = torch.cat([torch.randn(61), torch.tensor([0.3137, 2048.0, 7.98])]).to(dtype)  # whole vectors: no tail
    integers = torch.randint(-3000, 3000, (64,))
    integers[62:] = torch.tensor([2049, 8])
    others = [*OTHERS, integers, x.flip(0)]
    same(lambda x, *ys: [[f(x, y), f(y, x)] for y in ys for f in OPERATORS], x, *others)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_factor_is_rounded_and_its_product_is_not(dtype):
    torch.manual_seed(0)
    x, y = torch.randn(2, 256).to(dtype)
    same(lambda x, y: (x.add(y, alpha=0.3137), x.sub(y, alpha=0.3137), torch.rsub(x, 0.7, alpha=0.3137)), x, y)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bases_and_exponents_are_rounded(dtype):
    program, x = lambda x: (0.9373**x, x**2049, x**0.3137), torch.tensor([0.996, 1.004, 100.0, 33.0], dtype=dtype)
    found, right = jitney.compile(program, backend="xla", fullgraph=True)(x), program(x)
    torch.testing.assert_close(found, right, rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_float64_becomes_a_half_by_way_of_float32():
    x = torch.tensor([1 + 2**-11 + 2**-40, 65519.99999, 1e300, 3e-8], dtype=torch.float64)
    same(lambda x: (x.half(), x.bfloat16(), (x * 1).half()), x)


def test_a_vector_of_halves_is_summed_in_float32():
    same(lambda m, x: (m @ x, x.dot(x)), torch.full((4, 512), 0.1).half(), torch.full((512,), 0.3).half())
