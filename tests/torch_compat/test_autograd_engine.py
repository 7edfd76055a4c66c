"""What starts a pass of autograd's engine."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from jitney.torch_compat.autograd_engine import gradients_of


class Seen(TorchFunctionMode):
    """The names of what is called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad.mul_(3)


def test_a_mode_sees_what_backward_calls() -> None:
    """Without it, nobody would see a write to a gradient: a torch that starts passes otherwise is not supported yet."""
    x, unused = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    y, given = Tripled.apply(x), torch.ones(2)
    with Seen() as seen:
        found = gradients_of([y], [x, unused], [given])
    assert "mul_" in seen.names
    assert found[1] is None and found[0].equal(torch.full((2,), 3.0)) and given.equal(found[0])
