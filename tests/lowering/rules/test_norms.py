"""Batch norm in training, which writes to its running statistics."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import Captured, externs

import jitney


def both(make: Any, fn: Any, x: torch.Tensor, calls: int = 2) -> Captured:
    """Results, gradients and module state after some calls, eagerly and lowered."""
    captured = Captured()
    found = []
    for lower_it in (False, True):
        module = copy.deepcopy(make)

        def step(x: torch.Tensor, module: Any = module) -> Any:
            return fn(module, x)

        run = jitney.compile(step, backend=captured.backend) if lower_it else step
        own = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        results = [run(own) for _ in range(calls)]
        sum(r.float().square().sum() for r in results).backward()
        found.append([*results, own.grad, *[p.grad for p in module.parameters()], *module.state_dict().values()])
    for got, want in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        assert got.stride() == want.stride()
    return captured


INPUTS = {
    "images": torch.randn(3, 6, 4, 5),
    "channels last": torch.randn(3, 6, 4, 5).to(memory_format=torch.channels_last),
    "rows": torch.randn(7, 6),
    "sequences": torch.randn(3, 6, 4),
    "volumes": torch.randn(2, 6, 2, 3, 2),
}
MODULES = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("affine", [True, False])
def test_training(name: str, affine: bool) -> None:
    module = MODULES[INPUTS[name].dim()](6, affine=affine)
    captured = both(module, lambda m, x: F.relu(m(x)), INPUTS[name])
    assert set(externs(captured.programs)) == {"copy_.default"}  # the running statistics


def test_the_same_norm_twice_reads_what_the_first_wrote() -> None:
    both(torch.nn.BatchNorm2d(6), lambda m, x: m(m(x)) * m.running_mean.sum(), INPUTS["images"])


def test_what_was_put_off_reads_the_statistics_from_before() -> None:
    def fn(m: Any, x: torch.Tensor) -> torch.Tensor:
        before = m.running_var.detach() * 2 + 1
        return m(x) + before.view(1, -1, 1, 1)

    both(torch.nn.BatchNorm2d(6), fn, INPUTS["images"])


def test_without_running_statistics() -> None:
    module = torch.nn.BatchNorm2d(6, track_running_stats=False)
    assert externs(both(module, lambda m, x: m(x), INPUTS["images"]).programs) == []


def test_by_the_running_statistics() -> None:
    module = torch.nn.BatchNorm2d(6).eval()
    module.running_mean.normal_()
    captured = both(module, lambda m, x: m(x), INPUTS["images"])
    assert externs(captured.programs) == []


def test_halves() -> None:
    """Eager's statistics of halves differ from ours in their last bit, and with them everything."""
    module = torch.nn.BatchNorm2d(6).to(torch.bfloat16)
    x = INPUTS["images"].to(torch.bfloat16)
    captured = Captured()
    got = jitney.compile(lambda x: module(x), backend=captured.backend)(x)
    want = copy.deepcopy(module)(x)
    torch.testing.assert_close(got, want, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("track", [True, False])
def test_gradients_of_which_little_is_left_are_as_exact_as_eagers(track: bool) -> None:
    """The sum of squares of what is normalised does not depend on what that was made of: gradients are what rounds."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8, track_running_stats=track), torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3), torch.nn.BatchNorm2d(8, track_running_stats=track),
    )  # fmt: skip
    x, far = torch.randn(4, 3, 12, 12), {}
    exact = gradients(copy.deepcopy(net).double(), x.double())
    compiled = copy.deepcopy(net)
    for name, run in (("eager", net), ("ours", jitney.compile(compiled, backend="llvm_cpu"))):
        found = gradients(run, x)
        far[name] = [(a - b).norm() for a, b in zip(found, exact, strict=True)]
    for n, (ours, eagers) in enumerate(zip(far["ours"], far["eager"], strict=True)):
        assert ours <= 2 * eagers, n


def gradients(run: Any, x: torch.Tensor) -> list[torch.Tensor]:
    run(x).square().sum().backward()
    return [p.grad.double() for p in run.parameters()]
