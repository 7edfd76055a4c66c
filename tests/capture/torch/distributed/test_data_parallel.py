"""``DistributedDataParallel`` in a whole step, on one rank; ``plugins/ddp_bucketing/tests/cases.py`` has several."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from helpers import observe
from torch import nn, optim
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

import jitney
from jitney.errors import Unsupported

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch without gloo")


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=10))
    yield
    dist.destroy_process_group()


def module() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))


def trained(wrap: Callable[[Any], Any], synchronised: tuple[bool, ...] = (True,)) -> Any:
    torch.manual_seed(0)
    ddp = DDP(module(), bucket_cap_mb=0.0001)
    optimizer = optim.Adam(ddp.parameters(), 0.01)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for one in synchronised:
            with contextlib.nullcontext() if one else ddp.no_sync():
                loss = ddp(x).square().mean() / len(synchronised)
                loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    run = wrap(step)
    losses = [run(torch.randn(5, 4)) for _ in range(4)]
    return losses, ddp.state_dict(), optimizer.state_dict(), [p.grad for p in ddp.parameters()]


@pytest.mark.parametrize("synchronised", [(True,), (False, False, True), (False,)])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_step_is_one_graph_that_reduces_once(synchronised: tuple[bool, ...], backend: str) -> None:
    wanted = trained(lambda step: step, synchronised)
    with observe() as seen:
        got = trained(lambda step: jitney.compile(step, backend=backend, fullgraph=True), synchronised)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    assert len(seen.graphs) == 2 and not seen.breaks and not seen.kept
    names = [getattr(node.target, "__name__", "") for node in seen.graphs[-1].graph.nodes]
    assert (names.count("all_reduce") > 1) == any(synchronised)  # one for each bucket
    assert names.count("all_reduce") <= len(trained(lambda step: step)[3])


def test_without_fullgraph_it_is_ddps_own_step() -> None:
    wanted = trained(lambda step: step)
    with observe() as seen:
        got = trained(lambda step: jitney.compile(step, backend="aot_eager"))
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    assert seen.breaks


def test_no_gradient_outside() -> None:
    ddp = DDP(module())
    with torch.no_grad():
        x = torch.randn(5, 4)
        ddp.eval()
        torch.testing.assert_close(jitney.compile(lambda x: ddp(x), backend="aot_eager", fullgraph=True)(x), ddp(x))


def only_forward(ddp: Any, x: torch.Tensor) -> Any:
    return ddp(x)


def twice(ddp: Any, x: torch.Tensor) -> None:
    (ddp(x) + ddp(x)).sum().backward()


def some_inputs(ddp: Any, x: torch.Tensor) -> None:
    ddp(x).sum().backward(inputs=[ddp.module[0].weight])


def with_a_break(ddp: Any, x: torch.Tensor) -> None:
    y = ddp(x)
    print(end="")
    y.sum().backward()


def differentiable(ddp: Any, x: torch.Tensor) -> None:
    ddp(x).sum().backward(create_graph=True)


REFUSED: dict[Callable[[Any, torch.Tensor], Any], str] = {
    only_forward: "is called, and backward\\(\\) is not",
    twice: "is called twice before backward",
    some_inputs: "reaches only some parameters",
    with_a_break: "print\\(\\) writes to the terminal",
    differentiable: "with create_graph=True or DistributedDataParallel",
}


@pytest.mark.parametrize("step", REFUSED)
def test_steps_that_are_refused(step: Callable[[Any, torch.Tensor], Any]) -> None:
    ddp = DDP(module())
    with pytest.raises(Unsupported, match=REFUSED[step]):
        jitney.compile(step, backend="aot_eager", fullgraph=True)(ddp, torch.randn(5, 4))


@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph", "gradient_as_bucket_view"])
def test_modules_that_are_refused(option: str) -> None:
    ddp = DDP(module(), **{option: True})
    with pytest.raises(Unsupported, match=option):
        jitney.compile(lambda x: ddp(x).sum().backward(), backend="aot_eager", fullgraph=True)(torch.randn(5, 4))


def test_a_communication_hook_that_comes_later() -> None:
    ddp = DDP(module())
    step = jitney.compile(lambda x: ddp(x).sum().backward(), backend="aot_eager", fullgraph=True)
    step(torch.randn(5, 4))
    ddp.register_comm_hook(None, default_hooks.allreduce_hook)
    with pytest.raises(Unsupported, match="communication hook"):
        step(torch.randn(5, 4))


def test_hooks_of_parameters_are_refused() -> None:
    ddp = DDP(module())
    next(ddp.parameters()).register_hook(lambda g: g * 2)
    with pytest.raises(Unsupported, match="to a tensor that has hooks or is DistributedDataParallel's"):
        jitney.compile(lambda x: ddp(x).sum().backward(), backend="aot_eager", fullgraph=True)(torch.randn(5, 4))
