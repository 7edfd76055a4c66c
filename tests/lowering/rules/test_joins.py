"""Tensors put together of parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lowering.graphs import kinds, lowered

from jitney_lowering.ir import Computed, Load, walk
from jitney_lowering.policy import GPU


@pytest.mark.parametrize("dynamic", [False, True])
def test_cat_and_stack(dynamic: bool) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cat([x, y]), torch.cat([x, x * 2, y], 0), torch.stack([x, x + 1], 1), torch.cat([x.t(), y.t()], -1)

    lowered(fn, torch.randn(3, 4), torch.randn(5, 4), dynamic=dynamic, whole=["cat.default"] * 4)


def test_cat_promotes_types_and_skips_what_is_empty() -> None:
    def fn(x: torch.Tensor) -> Any:
        return torch.cat([x, x.double()]), torch.cat([x, torch.zeros(0)]), torch.cat([x])

    captured = lowered(fn, torch.randn(3, 4), whole=None)
    assert kinds(captured.program).count("cat.default") == 1


def test_parts_that_are_computed_are_computed_once() -> None:
    captured = lowered(lambda x: torch.cat([x.exp(), x.sin()], -1), torch.randn(3, 4), whole=["cat.default"])
    assert kinds(captured.program) == ["pointwise", "pointwise", "cat.default"]
    assert captured.program.steps[-1].reason == "joined"


def test_what_all_parts_read_at_one_place_is_read_once() -> None:
    def fn(packed: torch.Tensor) -> torch.Tensor:
        return torch.stack([packed & 15, (packed >> 4) & 15], -1).flatten(1)

    captured = lowered(fn, torch.arange(60, dtype=torch.uint8).view(5, 12), policy=GPU, exact=True)
    (step,) = captured.program.steps
    assert isinstance(step, Computed)
    loads = [v for v in walk(step.value) if isinstance(v, Load)]
    assert len(loads) == 1 and loads[0].mask is None
