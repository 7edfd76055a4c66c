"""A small reduction to one number, what it is of and what goes on with it are one kernel; brief kernels are merged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import lowered

import jitney
from jitney_lowering import GPU
from jitney_lowering.ir import Kernel
from jitney_lowering.policy import CPU, Policy
from jitney_lowering.scheduler import schedule


def kernels(fn: Callable[..., Any], *args: torch.Tensor, policy: Policy = GPU) -> list[Kernel]:
    """What is launched; its numbers are compared with eager's."""
    made = schedule(lowered(fn, *args, whole=None, policy=policy).program, policy=policy)
    made.verify()
    return [item for item in made.items if isinstance(item, Kernel)]


def normed(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean() + 1e-6)


def fitted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Several numbers, each of what goes on with the one before."""
    x = x - x.mean()
    y = y - y.mean()
    slope = (x * y).sum() / (x * x).sum()
    rest = y - slope * x
    return rest / rest.square().mean().sqrt()


def deep(x: torch.Tensor) -> torch.Tensor:
    """A long chain of cheap steps."""
    for step in range(40):
        x = (x * 1.01 + step).maximum(x - 1) * x.sin()
    return x


ONE = {
    "a norm": (normed, ((2048,),)),
    "of two dimensions": (normed, ((32, 64),)),
    "a softmax": (lambda x: F.softmax(x, 0), ((1000,),)),
    "a line": (fitted, ((500,), (500,))),
    "a number alone": (lambda x: (x * 2).sum().sqrt() + 1, ((300,),)),
    "two results": (lambda x: (x.sum(), x / x.sum(), x.max()), ((300,),)),
    "turned": (lambda x: (x.t() / x.sum()).contiguous(), ((30, 20),)),
    "part of it": (lambda x: x[10:20] / x.sum(), ((300,),)),
    "an extreme's place": (lambda x: x * x.argmax(), ((300,),)),
    "few rows": (lambda x: F.layer_norm(x + 1, (512,)), ((8, 512),)),
    "a residual before a few rows": (lambda x, y: (x + y, F.rms_norm(x + y, (512,))), ((8, 512), (8, 512))),
}


@pytest.mark.parametrize("name", ONE)
def test_small_reductions_and_what_goes_on_with_them_are_one_kernel(name: str) -> None:
    fn, sizes = ONE[name]
    assert len(kernels(fn, *(torch.randn(size) for size in sizes))) == 1


@pytest.mark.parametrize(
    ("fn", "size"),
    [
        (normed, (100_000,)),  # threads of many programs have a part each
        (lambda x: normed(x.sin().exp().sin().exp().sin().exp()), (8000,)),  # much to do for each element
        (lambda x: x[:100].sum() * x, (100_000,)),
        (lambda x: normed(deep(x)), (4096,)),  # each step of it is little
        (lambda x: F.layer_norm(deep(x), (4096,)), (8, 4096)),
        (lambda x: torch.where(x > 0, x, x.sum())[None] * torch.ones(3000, 1), (300,)),
    ],
)
def test_what_many_threads_do_sooner_stays_apart(fn: Callable[..., Any], size: tuple[int, ...]) -> None:
    assert len(kernels(fn, torch.randn(size))) > 1


def test_cpus_have_no_kernels_of_one_row() -> None:
    assert not any(k.outer and k.outer[0].size.value == 1 for k in kernels(fitted, *torch.randn(2, 500), policy=CPU))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 8191, 8192])
def test_rows_of_every_length(size: int) -> None:
    for fn in (normed, lambda x: (x - x.amax()).exp().sum().log() + x):
        kernels(fn, torch.randn(size))


def test_steps_of_a_running_sum_are_kept() -> None:
    """A kernel that stays, for a number that it reduces, is not spared by computing its other results again."""

    def fn(x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        for y in more:
            x = x + y @ normed(x)
        return normed(x)

    found = kernels(fn, torch.randn(512), *(torch.randn(512, 512) for _ in range(6)))
    assert max(len(k.reads) for k in found) <= 4


def test_brief_kernels_of_equal_ranges_are_one() -> None:
    def fn(x: torch.Tensor, *weights: torch.Tensor) -> list[torch.Tensor]:
        return [(x * w).sum(-1) * 2 for w in weights]

    weights = [torch.randn(2048, 100) for _ in range(3)]
    assert len(kernels(fn, torch.randn(100), *weights)) == 1
    assert len(kernels(fn, torch.randn(100), *weights, torch.randn(1500, 100))) == 2


def test_kernels_that_compute_much_are_not_merged() -> None:
    """All pairs of points: little to read, much to do."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [(1 / (p[:, None] - p[None]).square().add(1e-2).sqrt().sin().exp()).sum(-1) for p in (x, y)]

    assert len(kernels(fn, torch.randn(2000), torch.randn(2000))) == 2


def test_a_kernel_between_two_that_are_alike_stays_between() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first = (x * 2).sum(-1)
        return (y * first.flip(0)[:, None]).sum(-1)

    kernels(fn, torch.randn(300, 50), torch.randn(300, 50))


def test_kernels_of_one_row_train() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (F.softmax(fitted(x, y), 0) * x).sum()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = (torch.randn(300, device=device, requires_grad=True) for _ in range(2))
    wanted = torch.autograd.grad(fn(x, y), (x, y))
    torch.testing.assert_close(torch.autograd.grad(jitney.compile(fn, backend="triton_gpu")(x, y), (x, y)), wanted)


def test_norms_of_many_parameters_share_kernels() -> None:
    def fn(*weights: torch.Tensor) -> list[torch.Tensor]:
        return [w / w.norm() for w in weights]

    assert len(kernels(fn, *(torch.randn(64) for _ in range(60)))) < 30
