"""Parts of long sums are computed where their terms are made, and are equal to eager's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering.graphs import lowered
from lowering.test_schedule import AGAIN, programs, same, shuffled

import jitney
from jitney_lowering import GPU, needed_bytes
from jitney_lowering.ir import Program
from jitney_lowering.policy import CPU, Policy
from jitney_lowering.scheduler import schedule
from jitney_lowering.scheduler.traffic import running

X = torch.rand(128, 513)


def averaged(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that change places, and their mean over time."""
    mean = torch.zeros_like(x)
    for _ in range(14):
        x = (4 * x.roll(1, 0)).softmax(1)
        mean = mean * 0.9 + x * 0.1
    return x, mean


def combined(x: torch.Tensor) -> torch.Tensor:
    """A tree of choices and products rather than a chain, in other dtypes too."""
    terms = []
    for k in range(9):
        x = (x.flip(0) + k).cos()
        terms.append(x)
    count = sum((t > 0.2).int() for t in terms[:5])
    return torch.where(count > 2, terms[0] * terms[1] + terms[2] * terms[3], terms[4] - terms[5]) + terms[6] * terms[7]


def rewritten(x: torch.Tensor) -> torch.Tensor:
    """What is added up changes in place on the way."""
    total, y = torch.zeros_like(x), x.clone()
    for k in range(8):
        y[k].mul_(2)
        y = (y + y.roll(1, 1)).cos()
        total += y * x
        y[:, k] = total[:, 1]
    return total


CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "averaged": averaged, "combined": combined, "rewritten": rewritten
}  # fmt: skip


@pytest.mark.parametrize("policy", [CPU, GPU])
def test_few_terms_are_kept(policy: Policy) -> None:
    program: Program = lowered(averaged, X, whole=None, policy=policy).program
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "TERMS", 1000)
        before = needed_bytes(schedule(program, policy=policy))
    after = needed_bytes(schedule(program, policy=policy))
    assert after <= 7 * X.numel() * 4 < before


@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_eagers(case: str, backend: str) -> None:
    x = X.cuda() if backend == "triton_gpu" and torch.cuda.is_available() else X
    compiled = jitney.compile(CASES[case], backend=backend, fullgraph=True, dynamic=False)
    torch.testing.assert_close(compiled(x), CASES[case](x), rtol=1e-4, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from([CPU, GPU, AGAIN]), st.randoms(use_true_random=False))
def test_whatever_is_computed_early_is_what_the_steps_compute(
    made: tuple[Program, dict[Any, int]], policy: Policy, dice: random.Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"TERMS": 1, "LARGE": 0, "WORTH": 1e9, "SLACK": 1e9}.items():
            patch.setattr(running, name, value)
        same(*made, shuffled(dice), policy)
