"""A few steps of training runs beside eager's; ``make drift`` makes thousands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.drift import Setting, problems
from torch import fx


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "dtype"), [("gpt", torch.bfloat16), ("resnet", torch.float32)])
def test_losses_stay_as_near_to_eager_as_eager_runs_are_to_each_other(model: str, dtype: torch.dtype) -> None:
    assert [*problems(Setting(model, dtype, "cpu", 10, 0), "llvm_cpu")] == []


@pytest.mark.slow
def test_a_backend_that_is_a_little_wrong_is_found() -> None:
    def wrong(graph: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        return lambda *args: [r * 1.0002 if r.is_floating_point() else r for r in graph(*args)]

    assert [*problems(Setting("gpt", torch.float32, "cpu", 20, 0), wrong)]
