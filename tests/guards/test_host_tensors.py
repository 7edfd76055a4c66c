"""Comparisons of numbers on the host remember their answers while there are functions that ask."""

from __future__ import annotations

import gc

import torch

from jitney.guards import host_tensors
from jitney.guards.host_tensors import HostComparison


def test_answers_are_shared_and_go_with_the_last_that_asks() -> None:
    asked: list[float] = []

    def positive(t: torch.Tensor) -> torch.Tensor:
        asked.append(float(t))
        return t > 0

    first, second = (HostComparison(positive, "the text of it") for _ in range(2))
    for comparison in (first, second, first):
        assert comparison(torch.tensor(2.0)) is True and comparison(torch.tensor(-1.0)) is False
    assert asked == [2.0, -1.0]
    for number in range(host_tensors.REMEMBERED + 10):
        first(torch.tensor(float(number)))
    assert len(first.answers) <= host_tensors.REMEMBERED
    del first, second, comparison
    gc.collect()
    assert "the text of it" not in host_tensors._answers
