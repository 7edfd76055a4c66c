"""What the tracer records: operators with kernels of their own stay whole."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from aot.sides import same
from helpers import t

import jitney


@pytest.mark.parametrize("function", [F.silu, F.mish, F.softplus], ids=lambda f: f.__name__)
def test_backward_operators_that_torch_also_writes_in_terms_of_others(function: object) -> None:
    assert callable(function)
    same(lambda x: function(x) * 2, lambda: (t(3, 4, requires_grad=True),))


def test_composite_operators_are_taken_apart_in_inference_mode() -> None:
    with torch.inference_mode():
        same(lambda x, w: F.linear(x, w).reshape(-1), lambda: (t(3, 4), t(5, 4)), poke=False)


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_constants_that_differ_in_a_bit(backend: str) -> None:
    def signs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (
            torch.copysign(x, torch.tensor([float("nan"), 1.0])),
            torch.copysign(x, torch.tensor([-float("nan"), 1.0])),
        )

    first, second = jitney.compile(signs, backend=backend)(torch.ones(2))
    assert (first.tolist(), second.tolist()) == ([1.0, 1.0], [-1.0, 1.0])
