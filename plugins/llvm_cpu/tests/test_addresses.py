"""Addresses that the caller of a graph has looked at are those that its kernels get."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

import jitney

Change = Callable[[list[torch.Tensor]], object]


def step(tensors: list[torch.Tensor]) -> torch.Tensor:
    """As an optimizer's: writes to some, reads others."""
    for parameter, gradient in zip(tensors[:3], tensors[3:], strict=True):
        parameter.mul_(0.5).sub_(gradient)
    return tensors[0].sum()


def swap(tensors: list[torch.Tensor]) -> None:
    tensors[0], tensors[1] = tensors[1], tensors[0]


def renew(tensors: list[torch.Tensor]) -> None:
    """The memory goes away and comes back elsewhere, under the same tensor."""
    storage, numbers = tensors[2].untyped_storage(), tensors[2].clone()
    storage.resize_(0)
    kept = [torch.empty(7) for _ in range(8)]
    storage.resize_(7 * 4)
    tensors[2].copy_(numbers)
    kept.clear()


def share(tensors: list[torch.Tensor]) -> None:
    tensors[4] = tensors[1]


def overlap(tensors: list[torch.Tensor]) -> None:
    room = torch.arange(10.0)
    tensors[0], tensors[5] = room[:7], room[3:]


def replace(tensors: list[torch.Tensor]) -> None:
    tensors[3].data = torch.full((7,), 3.0)


CHANGES: list[Change] = [len, swap, replace, renew, len, share, swap, overlap, replace]  # len: none


def test_tensors_whose_memory_is_another_are_found_where_they_are() -> None:
    sides = [[torch.linspace(-n, n + 1, 7) for n in range(6)] for _ in range(2)]
    compiled = jitney.compile(step, backend="llvm_cpu", dynamic=False, fullgraph=True)
    for _ in range(2):
        for change in CHANGES:
            for tensors in sides:
                change(tensors)
            for _ in range(2):
                torch.testing.assert_close(compiled(sides[0]), step(sides[1]))
                torch.testing.assert_close(sides[0], sides[1])


class Trained:
    """A small model, its optimizer, and what may happen to them between steps."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 0.1)
        self.x = torch.linspace(-1, 1, 12).view(3, 4)
        self.saved: Any = None

    def step(self) -> torch.Tensor:
        """Forward, backward, update."""
        self.optimizer.zero_grad()
        loss = self.model(self.x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    @property
    def weight(self) -> torch.nn.Parameter:
        """One of the parameters."""
        return self.model[0].weight

    def save(self) -> None:
        """For ``load``."""
        self.saved = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))

    def load(self) -> None:
        """Other tensors are the optimizer's state from now on."""
        self.model.load_state_dict(self.saved[0])
        self.optimizer.load_state_dict(self.saved[1])

    def swap_data(self) -> None:
        """Other memory, same parameter."""
        self.weight.data = self.weight.detach() * 2

    def move_state(self) -> None:
        """The moments change places."""
        state = self.optimizer.state[self.weight]
        state["exp_avg"], state["exp_avg_sq"] = state["exp_avg_sq"], state["exp_avg"].abs()

    def renew_memory(self) -> None:
        """The memory goes away and comes back elsewhere."""
        moment = self.optimizer.state[self.weight]["exp_avg"]
        storage, numbers = moment.untyped_storage(), moment.clone()
        storage.resize_(0)
        storage.resize_(numbers.nbytes)
        moment.copy_(numbers)

    def freeze(self) -> None:
        """No gradient."""
        self.weight.requires_grad_(not self.weight.requires_grad)

    def forget_gradient(self) -> None:
        """Somebody has looked, and dropped it."""
        self.weight.grad = None

    def replace(self) -> None:
        """Another parameter, which the optimizer is told of."""
        new = torch.nn.Parameter(self.weight.detach() + 1)
        self.optimizer.state[new] = self.optimizer.state.pop(self.weight)
        self.optimizer.param_groups[0]["params"][0] = self.model[0].weight = new

    def widen(self) -> None:
        """Another dtype, memory and state."""
        self.model.double()
        self.x = self.x.double()
        for state in self.optimizer.state.values():
            state["exp_avg"], state["exp_avg_sq"] = state["exp_avg"].double(), state["exp_avg_sq"].double()


def test_what_happens_between_whole_steps_is_noticed() -> None:
    ours, eager = Trained(), Trained()
    step = jitney.compile(ours.step, backend="llvm_cpu", dynamic=False, fullgraph=True)
    changes = [
        "save",
        "swap_data",
        "move_state",
        "renew_memory",
        "forget_gradient",
        "freeze",
        "freeze",
        "replace",
        "load",
    ]
    for name in ["", *changes, "swap_data", "widen", ""]:
        for side in (ours, eager):
            getattr(side, name, int)()
        for _ in range(2):
            torch.testing.assert_close(step(), eager.step(), msg=name)
        for a, b in zip(ours.model.parameters(), eager.model.parameters(), strict=True):
            torch.testing.assert_close((a, a.grad), (b, b.grad), msg=name)
        assert ours.weight.requires_grad == eager.weight.requires_grad
