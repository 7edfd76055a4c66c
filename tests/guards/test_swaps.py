"""``torch.utils.swap_tensors``, and what torch does by it: parameters are other tensors afterwards, in training too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import compile_fn
from torch import nn

Step = Callable[[torch.Tensor], list[torch.Tensor]]


class Net(nn.Module):
    def __init__(self, breaks: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.breaks = nn.Linear(4, 4), nn.Linear(4, 2), breaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        if self.breaks:
            print(end="")
        return self.second(x)


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(1))


def converted(net: nn.Module, step: Step) -> Iterator[list[torch.Tensor]]:
    x = drawn(3, 4)
    yield step(x)
    net.zero_grad()
    net.double()
    yield step(x.double())
    net.zero_grad()
    net.float()
    yield step(x)


def loaded(net: nn.Module, step: Step) -> Iterator[list[torch.Tensor]]:
    yield step(drawn(3, 4))
    net.load_state_dict({name: drawn(*value.shape) for name, value in net.state_dict().items()})
    yield step(drawn(3, 4))


def optimized(net: nn.Module, step: Step) -> Iterator[list[torch.Tensor]]:
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        yield step(drawn(3, 4))
        optimizer.step()
        net.zero_grad()
        for p in net.parameters():
            torch.utils.swap_tensors(p, nn.Parameter(drawn(*p.shape)))
    yield step(drawn(3, 4))


def inputs(net: nn.Module, step: Step) -> Iterator[list[torch.Tensor]]:
    x, y, longer = drawn(3, 4).requires_grad_(), drawn(3, 4).neg().requires_grad_(), drawn(5, 4)
    for other in (y, longer):
        yield step(x)
        torch.utils.swap_tensors(x, other)
    yield step(x)


@pytest.fixture
def by_swapping() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.usefixtures("by_swapping")
@pytest.mark.parametrize("story", [converted, loaded, optimized, inputs])
@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("backend", ["eager", "llvm_cpu"])
def test_what_is_swapped_between_steps_is_seen(backend: str, breaks: bool, story: Any) -> None:
    sides = []
    for wrap in (lambda net: net, lambda net: compile_fn(net, backend=backend)):
        net = Net(breaks)
        run = wrap(net)

        def step(x: torch.Tensor, net: nn.Module = net, run: Any = run) -> list[torch.Tensor]:
            net.zero_grad()
            result = run(x)
            result.square().sum().backward()
            return [result.detach(), *(p.grad.clone() for p in net.parameters())]

        sides.append([*story(net, step)])
    torch.testing.assert_close(sides[1], sides[0])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_is_swapped_between_forward_and_backward_is_eagers_error(backend: str) -> None:
    net = Net(False)
    loss = compile_fn(net, backend=backend)(drawn(3, 4)).sum()
    torch.utils.swap_tensors(net.first.weight, nn.Parameter(drawn(4, 4)))
    with pytest.raises(RuntimeError, match="poisoned by swap_tensors"):
        loss.backward()
