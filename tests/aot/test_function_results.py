"""``autograd.Function`` whose forward gives back its argument, or a view of it: same memory, its own backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aot.sides import same
from aot.test_views import leaf, plain, result

import jitney


class Scaled(torch.autograd.Function):
    """A layer that scales (or reverses) gradients."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.scale = scale
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad * ctx.scale, None


class Viewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return -grad


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.t()[1:], x.sin()

    @staticmethod
    def backward(ctx: Any, turned: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(turned, (0, 0, 1, 0)).t() * 3 + sine


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_non_differentiable(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 5


def viewed_again(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = Viewed.apply(x)
    return y, y.view(-1)


def beside_its_argument(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = x.sin()
    return Scaled.apply(h, -2.0), h


ALONE: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda x: (Scaled.apply(x, -2.0), x is Scaled.apply(x, 1.0)),
    "a view": lambda x: Viewed.apply(x),
    "another view": lambda x: Turned.apply(x),
    "a view of it": lambda x: Viewed.apply(x).t()[1:],
    "of a view": lambda x: Scaled.apply(x.view(-1)[2:], 3.0),
    "twice": lambda x: Viewed.apply(Scaled.apply(x, 0.5)),
    "two": lambda x: (Viewed.apply(x), Scaled.apply(x, 0.5)),
    "beside a loss": lambda x: (y := Viewed.apply(x), (y * y).sum(), x * 2),
    "of what is made": lambda x: Scaled.apply(x.sin(), -2.0),
    "expanded": lambda x: Viewed.apply(x[:1].expand(3, 4)),
    "no gradient": lambda x: (Marked.apply(x), x * 2),
}


@pytest.mark.parametrize("make", [leaf, result, plain])
@pytest.mark.parametrize("program", ALONE.values(), ids=ALONE.keys())
def test_the_functions_backward_is_that_of_the_result(program: Any, make: Any) -> None:
    kept = "which gradients" if program is ALONE["another view"] and make is not plain else None
    same(lambda x: program(x), make, dynamic=make is result, poke=make is plain, kept=kept)


@pytest.mark.parametrize("program", [viewed_again, beside_its_argument])
def test_beside_other_tensors_in_the_same_memory_the_graph_runs_as_captured(program: Any) -> None:
    same(program, result, kept="gives back its argument")


def test_writes_to_it_are_refused_and_by_others_are_seen() -> None:
    """Autograd's errors name the function; that of a graph is the graph's own."""
    for make in (leaf, result):
        for fn in (Viewed.apply, jitney.compile(lambda x: Viewed.apply(x), backend="aot_eager", fullgraph=True)):
            (x,) = make()
            with pytest.raises(RuntimeError, match="Output 0 of .* is a view and is being modified inplace"):
                fn(x).mul_(2)
            y = fn(x)
            with torch.no_grad():
                y.mul_(2)
            assert torch.equal(y.detach(), x.detach())
            with pytest.raises(RuntimeError, match="its base or another view of its base has been modified inplace"):
                y.sum().backward()


def test_an_argument_that_is_written_to() -> None:
    def written(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = Viewed.apply(x)
        z = y * 2
        with torch.no_grad():
            x.mul_(2)
        return z, x

    same(written, result)
    same(lambda x: (Doubled.apply(x), x * 3), result)
    same(lambda x: Doubled.apply(x.t()).sum() * x, result)
    same(lambda x: (Viewed.apply(x), x.detach().mul_(2)), plain)


def test_kernels_leave_it_where_it_is() -> None:
    same(lambda x: (Viewed.apply(x), Scaled.apply(x, 3.0) * 2), result, backend="llvm_cpu", close=True, poke=False)
