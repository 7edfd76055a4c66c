"""A fixed choice of torch's own inputs for modules and optimizers is on each backend as in eager."""

from __future__ import annotations

import pytest
import torch
from differential import torch_inputs
from testing.wrong_backends import WRONG

from jitney_testing.opinfo.samples import is_chosen

BACKENDS = ("eager", "aot_eager", "llvm_cpu")


@pytest.mark.parametrize("backend", BACKENDS)
def test_modules(backend: str) -> None:
    _same([case for case in torch_inputs.module_cases() if is_chosen(case, 0.003)], backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_optimizers(backend: str) -> None:
    _same([case for case in torch_inputs.optimizer_cases() if is_chosen(case, 0.04)], backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_losses_of_one_sample_without_a_batch(backend: str) -> None:
    names = ("MultiLabelMarginLoss", "MultiMarginLoss")
    cases = [
        c for c in torch_inputs.module_cases() if c.place.name.endswith(names) and c.place.kind == "float32 inference"
    ]
    _same(cases, backend)


def test_a_backend_that_is_wrong_is_noticed() -> None:
    wrong, _ = WRONG["off_by_a_percent"]
    case = next(c for c in torch_inputs.module_cases() if c.place.name == "nn.GELU" and c.place.kind == "float32 train")
    assert torch_inputs.attempt(case, wrong).failure.startswith("values")


@pytest.mark.parametrize("name", ["nn.Linear", "nn.LayerNorm", "nn.Conv1d"])
def test_gradients_that_are_wrong_are_noticed(name: str) -> None:
    """Which they are only if float64's come from the same tangents."""
    wrong, _ = WRONG["wrong_in_backward"]
    case = next(torch_inputs.module_cases(name, "float32 train"))
    assert torch_inputs.attempt(case, wrong).failure.startswith("values")


def _same(cases: list[torch_inputs.Case], backend: str) -> None:
    assert cases
    flags = torch.backends.flags_frozen()
    outcomes = [torch_inputs.attempt(case, backend) for case in cases]
    assert [o for o in outcomes if o.failure] == []
    assert any(not o.eager_raises for o in outcomes) and torch.backends.flags_frozen() == flags
