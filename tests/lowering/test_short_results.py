"""Forces along three axes are three sums in one kernel, which computes each distance once and keeps none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering.graphs import lowered

import jitney
from jitney_lowering import GPU, needed_bytes
from jitney_lowering.scheduler import schedule

Pairs = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def forces(p: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    apart = p[None] - p[:, None]
    return (apart * (m[None] * (apart.square().sum(-1) + 0.01) ** -1.5)[..., None]).sum(1)


def nearby(p: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    near = torch.cdist(p, p, compute_mode="donot_use_mm_for_euclid_dist") < m[:, None]
    return (near[..., None] & (p[None] > p[:, None])).any(1)


def reached(p: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    weights = torch.exp(-(m[:, None] - m[None]).abs() * 3)
    return (weights[..., None] * p[None]).amax(1) + (weights[..., None] * p[None]).sum(1)


def columns(p: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """The rows of results lie across memory."""
    weights = torch.sigmoid(m[:, None] * m[None])
    return (weights[None] * p.t()[:, :, None]).sum(1).t() * 2


CASES: dict[str, Pairs] = {"forces": forces, "nearby": nearby, "reached": reached, "columns": columns}
_drawn = torch.Generator().manual_seed(0)  # points that happen to be near each other have gradients of any size
P, M = torch.rand(37, 3, generator=_drawn), torch.rand(37, generator=_drawn)


@pytest.mark.parametrize("case", ["forces", "reached", "columns"])
def test_nothing_of_a_pair_is_kept(case: str) -> None:
    p, m = torch.rand(3000, 3), torch.rand(3000)
    program = lowered(CASES[case], p, m, whole=None, policy=GPU).program
    made = schedule(program, policy=GPU)
    assert len(made.items) == 1 or case != "forces"
    assert needed_bytes(made) <= 3 * p.numel() * 4


def test_results_that_share_little_stay_together() -> None:
    p, m = torch.rand(300, 3000, 3), torch.rand(3000)
    program = lowered(lambda p, m: (p * m[None, :, None]).sum(1), p, m, whole=None, policy=GPU).program
    assert sum(str(item).count("sum") for item in schedule(program, policy=GPU).items) == 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_eagers(case: str, trains: bool, dynamic: bool) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    fn = CASES[case]
    p, m = (t.to(device).requires_grad_(trains and case != "nearby") for t in (P.clone(), M.clone()))
    compiled = jitney.compile(fn, backend="triton_gpu", fullgraph=True, dynamic=dynamic)
    found, wanted = compiled(p, m), fn(p, m)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    if wanted.requires_grad:
        gradients = [torch.autograd.grad(result.sin().sum(), (p, m)) for result in (found, wanted)]
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)
