"""Results of a graph that read the same come from one kernel, however far apart the program computes them."""

from __future__ import annotations

import torch
from lowering.graphs import Captured, assert_same
from torch import Tensor

import jitney
from jitney_lowering.ir import Kernel
from jitney_lowering.policy import CPU, GPU, Policy
from jitney_lowering.scheduler import schedule

COUNT = 24  # more than the neighbours that fusion looks at


def clipped_step(params: list[Tensor], grads: list[Tensor], momenta: list[Tensor]) -> Tensor:
    total = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        g.mul_(torch.clamp(1.0 / (total + 1e-6), max=1.0))
    for p, g, m in zip(params, grads, momenta, strict=True):
        g = g + 5e-4 * p
        m.mul_(0.9).add_(g)
        p.add_(g + 0.9 * m, alpha=-0.1)
    return total


def made(policy: Policy) -> tuple[Captured, list[Tensor]]:
    tensors = [[torch.randn(7 + n) for n in range(COUNT)] for _ in range(3)]
    other = [[t.clone() for t in many] for many in tensors]
    captured = Captured(policy=policy)
    assert_same(jitney.compile(clipped_step, backend=captured.backend, fullgraph=True)(*tensors), clipped_step(*other))
    for many, theirs in zip(tensors, other, strict=True):
        assert_same(many, theirs)
    return captured, [t for many in tensors for t in many]


def test_a_gradient_is_read_once_for_all_that_a_step_makes_of_it() -> None:
    for policy in (CPU, GPU):
        captured, _ = made(policy)
        program = captured.program
        items = schedule(program, policy=policy).items
        gradients = [name for name in program.inputs if isinstance(name, str)][:COUNT]
        updates = [
            i for i in items if isinstance(i, Kernel) and len(i.writes & {o.buffer for o in program.outputs}) >= 3
        ]
        for name in gradients:
            assert sum(name in item.reads for item in items) == 2  # for the norm, and for the update
            assert sum(name in item.reads for item in updates) == 1


def test_what_one_alone_reads_is_not_kept_for_another() -> None:
    """Else it would lie in memory until the other one runs."""

    def fn(x: Tensor, y: Tensor, others: list[Tensor]) -> list[Tensor]:
        early = y.cumsum(0)
        first = x * early
        between = [z.exp().sum() for z in others]
        return [first, *between, early.cumsum(0).flip(0) + x]

    captured = Captured()
    args = torch.randn(30), torch.randn(30), [torch.randn(40 + n) for n in range(COUNT)]
    assert_same(jitney.compile(fn, backend=captured.backend, fullgraph=True)(*args), fn(*args))
    program = captured.program
    (maker,) = [o.buffer for o in program.outputs[:1]]
    (kernel,) = [i for i in schedule(program).items if isinstance(i, Kernel) and maker in i.writes]
    assert program.outputs[-1].buffer not in kernel.writes
