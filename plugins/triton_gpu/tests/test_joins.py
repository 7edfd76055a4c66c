"""Tensors put together of parts, beside eager."""

from __future__ import annotations

import pytest
from backend_joins import *  # noqa: F403
from backend_joins import GRADIENTS, PROGRAMS, On, test_gradients_of_joins_are_eagers, test_joined_as_in_eager

from jitney_lowering.scheduler.traffic import estimate, recompute


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_that_are_not_computed_again_go_where_they_belong(
    name: str, dynamic: bool, on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recompute, "MOST_OPERATIONS", 0)
    monkeypatch.setattr(estimate, "LAUNCH", 0)
    test_joined_as_in_eager(name, dynamic, "triton_gpu", on)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_parts_that_go_where_they_belong(name: str, on: On, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "MOST_OPERATIONS", 0)
    monkeypatch.setattr(estimate, "LAUNCH", 0)
    test_gradients_of_joins_are_eagers(name, "triton_gpu", on)
