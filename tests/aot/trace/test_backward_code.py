"""What autograd functions and hooks write and draw while the engine runs backward is seen as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe

Backward = Callable[[Any, torch.Tensor], torch.Tensor]


def _tripled(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    grad *= 3
    return grad


def _by_a_view(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    grad.view(-1)[1:].detach().mul_(3)
    return grad * 2


def _by_out(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    return torch.mul(grad, 3, out=grad)


def _another_shape(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    grad.unsqueeze_(0)
    return grad[0]


def _argument(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    x.data.mul_(2)
    return grad * 2


def _kept(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    ctx.kept.mul_(2)
    return grad * ctx.kept


def _caught(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    try:
        grad.mul_(3)
    except Exception:
        return grad
    return grad * 2


def _own(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    made = grad.clone()
    made.mul_(3)
    made += 1
    return made


def _function(backward: Backward) -> Any:
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.kept = x.detach() * 3
        return x * 2

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Function", (torch.autograd.Function,), methods)


def _gradients(run: Callable[..., Any]) -> list[Any]:
    seen: list[Any] = []
    torch.manual_seed(0)
    for size in (3, 3, 4):
        x = torch.arange(2.0 * size).reshape(size, 2).requires_grad_()
        y = run(x)
        for _ in range(2):
            given = torch.ones(size, 2)
            found = torch.autograd.grad(y, [x], [given], retain_graph=True)
            seen += [y.detach().clone(), *found, given.clone(), x.detach().clone(), torch.rand(2)]
    return seen


WRITES = (_tripled, _by_a_view, _by_out, _another_shape, _argument, _kept, _caught)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("backward", [*WRITES, _own], ids=lambda backward: backward.__name__)
def test_writes_of_a_backward_reach_those_who_hold_the_tensor(backward: Backward, backend: str) -> None:
    function = _function(backward)

    def function_of(x: torch.Tensor) -> torch.Tensor:
        return function.apply(x) + 0

    with observe() as seen:
        torch.testing.assert_close(_gradients(compile_fn(function_of, backend=backend)), _gradients(function_of))
    if backward is _own:
        assert not seen.kept


def test_writes_of_a_hook_reach_the_gradient() -> None:
    def hooked(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda grad: grad.mul_(2))
        return y + 0

    torch.testing.assert_close(_gradients(compile_fn(hooked, backend="aot_eager")), _gradients(hooked))


def _noisy(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    return grad * torch.rand(grad.shape)


def _unused(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    torch.rand(2)
    return grad * 2


@pytest.mark.parametrize("backward", [_noisy, _unused], ids=lambda backward: backward.__name__)
def test_a_backward_draws_when_it_runs(backward: Backward) -> None:
    function = _function(backward)

    def drawn(x: torch.Tensor) -> torch.Tensor:
        return function.apply(x) * torch.rand(2)

    def drawn_after_a_seed(x: torch.Tensor) -> torch.Tensor:
        y = function.apply(x)
        torch.manual_seed(4)
        return y * torch.rand(2)

    for f in (drawn, drawn_after_a_seed):
        with observe() as seen:
            torch.testing.assert_close(_gradients(compile_fn(f, backend="aot_eager")), _gradients(f), rtol=0, atol=0)
        assert f is drawn_after_a_seed or not seen.kept


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("backward", [_noisy, _unused], ids=lambda backward: backward.__name__)
def test_results_without_gradients_are_not_drawn_for(backward: Backward, used: tuple[int, ...]) -> None:
    function = _function(backward)

    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return function.apply(x), x * 3

    def seen(run: Callable[..., Any]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x = torch.ones(3, 2, requires_grad=True)
        y = run(x)
        return [*torch.autograd.grad([y[i].sum() for i in used], [x]), torch.rand(2)]

    torch.testing.assert_close(seen(compile_fn(two, backend="aot_eager")), seen(two), rtol=0, atol=0)


def _two(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, x * 3


def _two_of_none(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    ctx.set_materialize_grads(False)
    return x * 2, x * 3


def _seen_missing(ctx: Any, first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    if first is None or second is None:
        return None if first is second else 20 * (second if first is None else first)
    return first * 2 + second * 3


def _affine(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return (first + 1) * (second + 2)


def _clamped(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return first.clamp(0.5, 2) + second.cos()


def _made_up(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return torch.ones(3, 2) * 3


def _plain(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return first * 2 + second * 3


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("backward", [_seen_missing, _affine, _clamped, _made_up, _plain], ids=lambda f: f.__name__)
def test_a_backward_gets_the_gradients_that_there_are(backward: Callable[..., Any], backend: str) -> None:
    forward = _two_of_none if backward is _seen_missing else _two
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type("Pair", (torch.autograd.Function,), methods)

    def apart(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = function.apply(x)
        return first.sin(), second.cos(), x.exp()

    def together(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = function.apply(x)
        return first * second, first + second, x.exp()

    for f in (apart, together):
        with observe() as seen:
            compiled = compile_fn(f, backend=backend)
            for used in ((0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)):
                torch.testing.assert_close(_gradient_of(compiled, used), _gradient_of(f, used))
        assert bool(seen.kept) == (f is apart or backward is _made_up)


def _gradient_of(run: Callable[..., Any], used: tuple[int, ...]) -> torch.Tensor | None:
    x = torch.arange(6.0).reshape(3, 2).requires_grad_()
    y = run(x)
    sum(y[i].sum() for i in used).backward()  # type: ignore[union-attr]
    return x.grad


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_a_gradient_that_a_function_makes_up_is_there_when_it_is_called(backend: str) -> None:
    """As losses are added that nothing else is computed of."""

    class WithLoss(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(loss)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return grad, torch.ones_like(ctx.saved_tensors[0]) * 3

    def with_loss(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return WithLoss.apply(x, (x * x).sum()).sin(), x * 2

    for used in ((0,), (1,), (0, 1)):
        compiled = compile_fn(with_loss, backend=backend)
        torch.testing.assert_close(_gradient_of(compiled, used), _gradient_of(with_loss, used))


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("flat", [torch.sgn, lambda y: y.pow(0)], ids=["sgn", "pow"])
def test_zeros_that_no_gradient_decides_are_there_where_eager_has_them(flat: Any, backend: str) -> None:
    def beside_others(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return flat(x), x * 2

    def of_a_result(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.abs()
        return flat(y), y

    for f in (beside_others, of_a_result):
        compiled = compile_fn(f, backend=backend)
        for used in ((0,), (1,), (0, 1)):
            torch.testing.assert_close(_gradient_of(compiled, used), _gradient_of(f, used))
