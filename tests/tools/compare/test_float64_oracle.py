"""Rounding is no fault; a percent is one, in every dtype."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jitney_tools.compare.float64_oracle import InDoubles, RandomDraws, close, doubled, too_far

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def three(function: Any, *inputs: Any) -> Any:
    """Eager's result and that of float64."""
    with RandomDraws() as random_draws:
        torch.manual_seed(1)
        eager = function(*inputs)
    with InDoubles(random_draws.draws):
        exact = function(*map(doubled, inputs))
    return eager, exact


def chain(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.tanh(x @ x.t()) * 3, -1).exp().sum(0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_is_computed_in_float64(dtype: torch.dtype) -> None:
    eager, exact = three(chain, torch.linspace(-1, 1, 36).reshape(6, 6).to(dtype))
    assert eager.dtype is dtype and exact.dtype is torch.float64
    assert torch.allclose(eager.double(), exact, rtol=0.05)


def test_dtypes_that_the_program_asks_for_are_wide_too() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x.half().float() + torch.ones(3) + torch.zeros(3, dtype=torch.bfloat16)
        return torch.arange(3.0) / 3 + y

    _, exact = three(program, torch.full((3,), 1 / 3))
    assert torch.allclose(exact, torch.arange(3.0, dtype=torch.float64) / 3 + 4 / 3, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_random_numbers_are_eagers(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> Any:
        y = torch.nn.functional.dropout(x, 0.5) + torch.randn_like(x)
        y.uniform_().add_(x)
        return y * torch.rand(5)

    eager, exact = three(program, torch.ones(5, dtype=dtype))
    assert torch.allclose(eager.double(), exact, rtol=0.05)


@pytest.mark.parametrize("dtype", DTYPES)
def test_another_order_of_summation_is_no_fault_and_a_percent_is_one(dtype: torch.dtype) -> None:
    x = (torch.linspace(-1, 1, 4096, dtype=torch.float64) + 0.3).reshape(64, 64).to(dtype)
    eager, exact = three(lambda x: x.sum(-1) / 7, x)
    other = x.flip(-1).cumsum(-1)[:, -1] / 7
    assert too_far(other, eager, exact) == "" or dtype in (torch.float16, torch.bfloat16)
    assert too_far(eager, eager, exact) == ""
    # In half types 7 roundings of cumsum's own are more than eager's single one.
    assert too_far((exact * 1.01).to(dtype), eager, exact) != ""


def test_a_single_wrong_element_is_found() -> None:
    x = torch.linspace(-1, 1, 10_000)
    eager, exact = three(torch.exp, x)
    wrong = eager.clone()
    wrong[1234] *= 1.01
    assert too_far(wrong, eager, exact).startswith("1 of 10000 elements are wrong; the largest error is 0.0")


def test_where_eager_itself_is_far_from_float64_others_may_be_too() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x + 1e8) - 1e8

    eager, exact = three(program, torch.tensor([1.0, 2.0, 3.0]))
    assert too_far(torch.tensor([1.0, 2.0, 3.0]), eager, exact) == ""  # a fused kernel may even be better
    assert too_far(torch.tensor([100.0, 2.0, 3.0]), eager, exact) != ""


def test_infinities_and_nan() -> None:
    expected = torch.tensor([1.0, float("inf"), float("nan")])
    assert too_far(expected.clone(), expected, expected.double()) == ""
    for at, value in [(0, float("nan")), (1, 1.0), (2, 1.0), (0, float("inf"))]:
        wrong = expected.clone()
        wrong[at] = value
        assert "infinite or NaN" in too_far(wrong, expected, expected.double())


def test_integers_are_exact_but_for_ties_that_rounding_decides() -> None:
    expected, exact = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])
    assert too_far(torch.tensor([1, 2, 4]), expected, exact) == ""
    assert too_far(torch.tensor([0, 2, 3]), expected, exact) == "1 of 3 elements"


def test_close_asks_no_further_only_for_a_few_roundings() -> None:
    x = torch.ones(3)
    assert close(x + 2e-7, x) and not close(x + 1e-5, x) and not close(torch.tensor([1]), torch.tensor([2]))


def test_complex_numbers() -> None:
    eager, exact = three(torch.exp, torch.linspace(-1, 1, 6).to(torch.complex64) * (1 + 2j))
    assert exact.dtype is torch.complex128
    assert too_far(eager, eager, exact) == "" and too_far(eager * 1.01, eager, exact) != ""
