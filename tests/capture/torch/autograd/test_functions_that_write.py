"""``autograd.Function`` whose forward writes to its arguments' data, which autograd does not count (torchdiffeq's)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aot.sides import same
from helpers import observe, t

import jitney


class Assigned(torch.autograd.Function):
    """Puts a value into a part of a tensor, past autograd's count of writes."""

    @staticmethod
    def forward(ctx: Any, room: torch.Tensor, value: torch.Tensor, index: Any) -> torch.Tensor:
        ctx.index = index
        room.data[index] = value
        return room

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return grad, grad[ctx.index], None


class AssignedLater(torch.autograd.Function):
    """The same without a context in its forward."""

    @staticmethod
    def forward(room: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        room.data[..., 0] = value
        return room

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.scale = 2.0

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return grad * ctx.scale, grad[..., 0]


class Rebound(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, room: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        room = room.t()
        room.data[0] = value
        return value * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return None, grad * 2


class Direct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, room: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        room[0] = value
        ctx.mark_dirty(room)
        return room

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return grad, grad[0]


def stages(x: torch.Tensor) -> torch.Tensor:
    """A step of Runge and Kutta's, as torchdiffeq writes it."""
    k = torch.empty(*x.shape, 3)
    k = Assigned.apply(k, x.sin(), (..., 0))
    for i in range(2):
        y = x + torch.sum(k[..., : i + 1] * (x.mean() * 0.1), dim=-1)
        k = Assigned.apply(k, y.cos(), (..., i + 1))
    return (k * x.sum()).sum(-1) + k[..., -1]


def saved_before(x: torch.Tensor) -> torch.Tensor:
    """What autograd has saved is seen as it is when the backward runs."""
    k = x.sin()[..., None].repeat(1, 1, 3)
    z = k * x[..., None]
    k = Assigned.apply(k, x.detach(), (..., 1))
    return k.sum(-1) + z.sum(-1)


def seen_elsewhere(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    k = x * 2
    part, before = k[1:], k[0] + 1
    Assigned.apply(k, x[0] * 5, 1)
    return part * 3, before


def without_context(x: torch.Tensor) -> torch.Tensor:
    return AssignedLater.apply(x.cos(), x[..., 1]) * 3


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "stages": stages, "saved before": saved_before, "seen elsewhere": seen_elsewhere, "no context": without_context,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_writes_to_what_the_frame_has_made_are_part_of_the_graph(backend: str) -> None:
    for program in PROGRAMS.values():
        for grad in (True, False):
            same(program, lambda grad=grad: (t(3, 4, requires_grad=grad),), backend=backend, close=True, poke=False)


def test_a_row_that_was_looked_up_before_is_eagers_view() -> None:
    def looked_up(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        k = x * 2
        row = k[i]
        Assigned.apply(k, x[0] * 5, 1)
        return row * 3

    same(looked_up, lambda: (t(3, 4, requires_grad=True), torch.tensor(1)), breaks=None, kept=..., poke=False)


@pytest.mark.parametrize("function", [
    lambda x, v: Assigned.apply(x.detach(), v, 1),
    lambda x, v: Rebound.apply(x * 1, v),
    lambda x, v: Direct.apply(x * 1, v),
])  # fmt: skip
def test_other_writes_are_graph_breaks(function: Any) -> None:
    same(function, lambda: (t(4, 4), t(4, requires_grad=True)), breaks=1, poke=False)


class OwnList(torch.autograd.Function):
    """Writes to lists and copies of its own, of which one variable is something else afterwards."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        shape = [1] * x.dim()
        shape[0] = -1
        parts = [x, x]
        parts[1] = x.clone()
        return x * torch.arange(x.shape[0]).view(shape) + parts[1]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        made = grad.clone()
        made[0] = 7
        made = torch.where(made > 5, made, made * 2)
        return made


class PerhapsCopy(torch.autograd.Function):
    """Writes to its gradient, or a copy."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, plain: bool) -> torch.Tensor:
        ctx.plain = plain
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        made = grad if ctx.plain else grad.clone()
        made[0] = 0
        return made, None


class WrittenInTurn(torch.autograd.Function):
    """Writes to a copy, and then to the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        made = grad.clone()
        for at in range(2):
            made[at] = 0
            made = grad
        return made


class OwnTensors(torch.autograd.Function):
    """Writes to new tensors by masks, to results of operators, and to a copy that has its argument's name."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        low = x < 1
        out[low] = x[low]
        out[x > 3] = 2
        x = x - x.max()
        x[..., 0] *= 2
        x[0][1] = 3
        filled = torch.empty(x.size(), dtype=x.dtype)
        filled[:] = 1
        kept = {}
        kept["low"] = low
        ctx.save_for_backward(kept["low"])
        return out + x + filled

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (low,) = ctx.saved_tensors
        grad = grad.clone()
        grad[~low] = 0
        more = grad - 1
        for at in range(2):
            more[at] += 1
        return more


class Output(torch.autograd.Function):
    """Writes to its gradient, by the name of what torch.mul is to write to."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        made = torch.zeros(3, 2, out=grad)
        made[0] = 0
        return made


class OfList(torch.autograd.Function):
    """Writes to its gradient through a list that is made anew."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        made = [grad] + [grad]
        made[0] *= 0
        return made[1]


class InHandler(torch.autograd.Function):
    """Writes to its gradient where making the copy has raised."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        made = grad
        try:
            made = grad.clone().view(100)
        except RuntimeError:
            made[0] = 0
        return made


OWN: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], int]] = {
    "lists": (lambda x: OwnList.apply(x), 0),
    "tensors": (lambda x: OwnTensors.apply(x), 0),
    "output": (lambda x: Output.apply(x), 1),
    "of a list": (lambda x: OfList.apply(x), 1),
    "in a handler": (lambda x: InHandler.apply(x), 1),
    "a copy or not": (lambda x: PerhapsCopy.apply(x, True), 1),
    "in turn": (lambda x: WrittenInTurn.apply(x), 1),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("name", OWN)
def test_writes_to_what_is_its_own_stay_in_the_graph_and_others_reach_the_gradient(name: str, backend: str) -> None:
    fn, breaks = OWN[name]

    def gradients(called: Any) -> list[Any]:
        x, grad = torch.arange(6.0).reshape(3, 2).requires_grad_(), torch.ones(3, 2)
        called(x).backward(grad)
        return [x.grad, grad]

    with observe() as seen:
        torch.testing.assert_close(gradients(jitney.compile(fn, backend=backend)), gradients(fn))
    assert len(seen.breaks) == breaks


class Held(torch.autograd.Function):
    """Writes to what lists of its own hold, which others have too."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, notes: dict[str, int]) -> torch.Tensor:
        held = [notes]
        held[0]["seen"] = 9
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        held = [ctx.saved_tensors[0].detach()]
        held[0][0] = 9
        return grad * held[0], None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_writes_through_lists_reach_what_they_hold(backend: str) -> None:
    def run(compiled: bool) -> tuple[Any, ...]:
        notes = {"seen": 0}

        def fn(x: torch.Tensor) -> torch.Tensor:
            y = Held.apply(x, notes)
            return y + notes["seen"]

        x = torch.ones(2, requires_grad=True)
        y = (jitney.compile(fn, backend=backend) if compiled else fn)(x)
        y.sum().backward()
        assert x.grad is not None
        return y.tolist(), notes, x.tolist(), x.grad.tolist()

    assert run(True) == run(False)
