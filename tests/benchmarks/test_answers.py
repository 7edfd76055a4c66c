"""A speed is only worth something if the answer is right."""

from __future__ import annotations

import pytest
import torch
from answers import compare, frozen

NAN, INF = float("nan"), float("inf")


def test_rounding_is_no_difference() -> None:
    x = torch.randn(1000)
    worst, wrong = compare([x], [x * (1 + 1e-5)])
    assert wrong == ""
    assert 0 < worst < 1e-4


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ([1.0, 2.0], [1.0, 2.01]),
        ([1.0, 2.0], [1.0, NAN]),
        ([1.0, NAN], [1.0, 2.0]),
        ([1.0, INF], [1.0, -INF]),
        ([1.0, INF], [1.0, 3.0]),
        ([0.0, 0.0], [0.0, 1e-3]),
    ],
)
def test_a_wrong_value_is_found(expected: list[float], got: list[float]) -> None:
    _, wrong = compare([torch.tensor(expected)], [torch.tensor(got)])
    assert wrong.startswith("tensor 0 of 1: off by")


def test_equal_infinities_and_nans_are_the_same() -> None:
    x = torch.tensor([1.0, INF, -INF, NAN])
    assert compare([x, torch.empty(0)], [x.clone(), torch.empty(0)]) == (0.0, "")


def test_a_gradient_that_is_rounding_next_to_the_others_may_differ() -> None:
    large, tiny = torch.tensor([1e3]), torch.tensor([1e-6])
    assert compare([large, tiny], [large, -tiny])[1] == ""
    assert compare([tiny], [-tiny])[1] != ""


def test_number_shape_and_dtype_count() -> None:
    x = torch.zeros(2)
    assert compare([x], [])[1] == "0 tensors instead of 1"
    assert compare([x], [x.double()])[1] == "tensor 0: torch.float64 (2,) instead of torch.float32 (2,)"
    assert compare([x], [x[None]])[1] == "tensor 0: torch.float32 (1, 2) instead of torch.float32 (2,)"


def test_integers_are_compared_exactly_enough() -> None:
    assert compare([torch.tensor([1, 2])], [torch.tensor([1, 2])]) == (0.0, "")
    assert compare([torch.tensor([1, 2])], [torch.tensor([1, 3])])[1] != ""


def test_a_frozen_result_does_not_change() -> None:
    x = torch.zeros(2)
    kept = frozen({"a": [x, None, 3]})
    x.add_(1)
    assert torch.equal(kept[0], torch.zeros(2))
