"""torch's fused optimizers as operators of a graph: its kernels' numbers, but for the last bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import optim

import jitney
from jitney import events

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "Adam": lambda p: optim.Adam(p, 0.1, fused=True),
    "Adam, decayed": lambda p: optim.Adam(p, 0.1, weight_decay=0.1, amsgrad=True, fused=True),
    "AdamW": lambda p: optim.AdamW(p, 0.1, fused=True),
    "AdamW, maximised": lambda p: optim.AdamW(p, 0.1, weight_decay=0.1, maximize=True, fused=True),
    "AdamW, a tensor's rate": lambda p: optim.AdamW(p, torch.tensor(0.1), fused=True),
    "SGD": lambda p: optim.SGD(p, 0.1, fused=True),
    "SGD, momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.2, weight_decay=0.1, fused=True),
    "SGD, nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, maximize=True, fused=True),
    "Adagrad": lambda p: optim.Adagrad(p, 0.1, lr_decay=0.1, weight_decay=0.1, fused=True),
}


def trained(make: Callable[[Any], optim.Optimizer], dtype: torch.dtype, compiles: bool) -> Any:
    torch.manual_seed(0)
    parameters = [torch.randn(size).to(dtype).requires_grad_() for size in ((3, 4), (5,))]
    optimizer = make(parameters)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        ((parameters[0] * x).float().square().mean() + parameters[1].float().tanh().sum()).backward()
        optimizer.step()

    run = jitney.compile(step, backend="aot_eager", fullgraph=True) if compiles else step
    for _ in range(5):
        run(torch.randn(3, 4).to(dtype))
    return parameters, [p.grad for p in parameters], optimizer.state_dict()["state"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_the_kernels(name: str, dtype: torch.dtype) -> None:
    kept: list[str] = []
    with events.listen(lambda e: kept.append(e.reason) if isinstance(e, events.GraphKept) else None):
        found = trained(OPTIMIZERS[name], dtype, compiles=True)
    close = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(found, trained(OPTIMIZERS[name], dtype, compiles=False), rtol=close, atol=close)
    assert not kept
