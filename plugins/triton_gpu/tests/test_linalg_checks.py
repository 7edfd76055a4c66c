"""Factorisations are asked once whether they have failed; errors, and what is written before them, are eager's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import jitney
from jitney import events


def filter_step(state: Tensor, a: Tensor, noise: Tensor) -> Tensor:
    gain = torch.linalg.solve(a @ a.mT + torch.eye(3, device=a.device), noise)
    state.mul_(0.5).add_(gain)
    root = torch.linalg.cholesky(noise)
    return torch.linalg.inv(root) + state


def given(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    noise = 2 * torch.eye(3, device=device) + 0.1
    return torch.randn(3, 3, device=device), torch.randn(3, 3, device=device), noise


def test_numbers_and_number_of_checks(device: torch.device) -> None:
    state, a, noise = given(device)
    expected_state = state.clone()
    expected = filter_step(expected_state, a, noise)
    seen: list[events.Lowered] = []
    with events.listen(lambda e: seen.append(e) if isinstance(e, events.Lowered) else None):
        actual = jitney.compile(filter_step, backend="triton_gpu", fullgraph=True)(state, a, noise)
    assert_close(actual, expected)
    assert_close(state, expected_state)
    checks = [name for event in seen for name, _ in event.whole if "check_errors" in name]
    assert checks == ["jitney.linalg_check_errors.default"]


def test_an_error_is_eagers_and_leaves_what_eager_leaves(device: torch.device) -> None:
    compiled = jitney.compile(filter_step, backend="triton_gpu", fullgraph=True)
    compiled(*given(device))
    state, a, noise = given(device)
    expected_state = state.clone()
    with pytest.raises(torch.linalg.LinAlgError) as wanted:
        filter_step(expected_state, a, -noise)
    with pytest.raises(torch.linalg.LinAlgError) as raised:
        compiled(state, a, -noise)
    assert str(raised.value) == str(wanted.value)
    assert_close(state, expected_state)
