"""Halves beside eager, to the last bit: what is rounded before an operator computes, and what is not."""

from __future__ import annotations

import pytest
import torch
from odd_numbers import run, same

OPERATORS = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: x > y,
    lambda x, y: x == y,
]
OTHERS = [0.3137, 2049, torch.tensor(0.3137), torch.tensor([2049]), torch.tensor(0.3137, dtype=torch.float64)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_operand_of_another_dtype_is_rounded_where_eager_rounds_it(dtype):
    def program(x, *ys):
        return [f(x, y) for y in ys for f in OPERATORS] + [f(y, x) for y in ys for f in OPERATORS]

    torch.manual_seed(0)
    x = torch.cat([torch.randn(61), torch.tensor([0.3137, 2048.0, 7.98])]).to(dtype)  # whole vectors: no tail
    integers = torch.randint(-3000, 3000, (64,))
    integers[62:] = torch.tensor([2049, 8])
    given = x, *OTHERS, integers, x.flip(0)
    same(run(program, *given)[0], program(*given))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_exponents_are_rounded(dtype):
    x = torch.tensor([0.996, 1.004, 100.0, 33.0], dtype=dtype)
    found, right = run(lambda x: x**2049, x)[0], x**2049
    torch.testing.assert_close(found, right, rtol=4 * torch.finfo(dtype).eps, atol=0)
