"""Parts of what a loop joins at its end: computed with what they are made of, and equal to eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering.graphs import lowered

import jitney
from jitney_lowering import GPU, needed_bytes
from jitney_lowering.ir import Computed, Program
from jitney_lowering.scheduler import schedule
from jitney_lowering.scheduler.traffic.early import early_parts

X = torch.rand(16, 40, 64)


def states(x: torch.Tensor) -> torch.Tensor:
    """Numerator and denominator go from step to step; their quotients are the result."""
    top = bottom = torch.zeros_like(x[:, 0])
    found = []
    for now in x.unbind(1):
        top, bottom = (top * 0.5 + now).sin(), (bottom * 0.5 + now * now).cos() + 1.5
        found.append(top / bottom)
    return torch.stack(found, 1)


def shifted(x: torch.Tensor) -> torch.Tensor:
    parts = [x[:, k : k + 8].flip(0) * k for k in range(0, 40, 8)]
    return torch.cat([*parts, parts[0] - parts[1]], 1).cumsum(1)


def written(x: torch.Tensor) -> torch.Tensor:
    """What a part reads changes on the way."""
    y = x.clone()
    parts = []
    for k in range(6):
        parts.append(y[:, k] * 2)
        y[:, k + 1].add_(y[:, k].sin())
    return torch.stack(parts, 1)


CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"states": states, "shifted": shifted, "written": written}


def test_states_are_not_kept_for_results() -> None:
    program = lowered(states, X, whole=None, policy=GPU).program
    result = X.numel() * 4
    assert needed_bytes(schedule(program, policy=GPU)) < 1.25 * result


@pytest.mark.parametrize("case", CASES)
def test_nothing_comes_before_what_it_reads(case: str) -> None:
    program: Program = lowered(CASES[case], X, whole=None, policy=GPU).program
    steps = early_parts(program.steps, program)
    assert sorted(map(str, steps)) == sorted(map(str, program.steps))
    made = {step.buffer: n for n, step in enumerate(steps) if isinstance(step, Computed)}
    for at, step in enumerate(steps):
        assert all(made.get(name, -1) < at for name in step.reads)


@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_eagers(case: str, dynamic: bool, backend: str) -> None:
    x = X.cuda() if backend == "triton_gpu" and torch.cuda.is_available() else X
    compiled = jitney.compile(CASES[case], backend=backend, fullgraph=True, dynamic=dynamic)
    torch.testing.assert_close(compiled(x), CASES[case](x), rtol=1e-4, atol=1e-4)
