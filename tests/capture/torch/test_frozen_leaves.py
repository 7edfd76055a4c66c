"""Leaves that are frozen and thawed around views of them: whether these require grad is for autograd's notes to say."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney


def _numbers() -> torch.Tensor:
    return torch.arange(1.0, 9.0)


def _with_gradient() -> torch.Tensor:
    x = torch.arange(0.0, 9.0)[1:].requires_grad_()
    x.grad = torch.ones(8)
    return x


LEAVES: dict[str, Callable[[], torch.Tensor]] = {
    "plain": _numbers,
    "parameter": lambda: torch.nn.Parameter(_numbers()),
    "detached": lambda: (_numbers().requires_grad_() * 2).detach().requires_grad_(),
    "slice": lambda: torch.arange(0.0, 9.0)[1:].requires_grad_(),
    "slice with a gradient": _with_gradient,
    "of its class": lambda: _numbers().as_subclass(torch.Tensor).requires_grad_(),
}


def _view(x: torch.Tensor, seen: list[Any]) -> None:
    seen.append(x[1:])


def _hidden(x: torch.Tensor, seen: list[Any]) -> None:
    with torch.no_grad():
        seen.append(x[2:])


def _freeze(x: torch.Tensor, seen: list[Any]) -> None:
    x.requires_grad_(False)


def _thaw(x: torch.Tensor, seen: list[Any]) -> None:
    x.requires_grad = True


def _used(x: torch.Tensor, seen: list[Any]) -> None:
    view = x[1:]
    x.requires_grad_(True)
    seen.append(view * 2)


def _ask(x: torch.Tensor, seen: list[Any]) -> None:
    seen.append([t.requires_grad for t in (x, *seen) if isinstance(t, torch.Tensor)])


def _write(x: torch.Tensor, seen: list[Any]) -> None:
    with torch.no_grad():
        x.mul_(2)


PROGRAMS = [
    (_freeze, _view, _thaw), (_view, _freeze, _thaw), (_view, _thaw, _freeze), (_thaw, _view, _freeze, _ask),
    (_freeze, _view, _ask, _thaw, _ask), (_freeze, _hidden, _thaw, _view), (_freeze, _view, _view, _thaw),
    (_freeze, _write, _view, _thaw), (_freeze, _used, _thaw), (_hidden, _view), (_view, _freeze), (_freeze, _view),
]  # fmt: skip


def _facts(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    try:
        history: Any = value.is_leaf, value.grad_fn is None
    except RuntimeError as error:
        history = str(error)
    return type(value), value.tolist(), value.requires_grad, value._version, history


def _story(fn: Callable[..., Any], make: Callable[[], torch.Tensor], grad: bool) -> Any:
    x = make()
    with torch.set_grad_enabled(grad):
        try:
            made = fn(x)
        except RuntimeError as error:
            return str(error), _facts(x)
    before = [*map(_facts, (x, *made))]
    gradients = []
    for t in made:
        if isinstance(t, torch.Tensor) and t.requires_grad and x.requires_grad:
            found = torch.autograd.grad((t * t).sum(), x, allow_unused=True)[0]
            gradients.append(None if found is None else found.tolist())
    x.requires_grad_()
    with torch.no_grad():
        x.add_(1)
    return before, gradients, [*map(_facts, (x, *made))]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_views_of_frozen_and_thawed_leaves(backend: str) -> None:
    for steps in PROGRAMS:

        def program(x: torch.Tensor, steps: Any = steps) -> tuple[Any, ...]:
            seen: list[Any] = []
            for step in steps:
                step(x, seen)
            return tuple(seen)

        for name, make in LEAVES.items():
            for grad in (True, False):
                compiled = jitney.compile(program, backend=backend)
                what = name, grad, [step.__name__ for step in steps]
                assert (what, _story(compiled, make, grad)) == (what, _story(program, make, grad))


def test_views_that_writes_have_made_stale_are_passed_on() -> None:
    def program(x: torch.Tensor, view: torch.Tensor) -> tuple[Any, ...]:
        return x * 2, view

    x = _numbers()
    with torch.no_grad():
        view = x[1:]
    x.mul_(torch.ones(8, requires_grad=True))
    assert jitney.compile(program, backend="eager")(x, view)[1] is view


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_data_taken_before_a_leaf_is_thawed_does_not_require_grad(backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        data = x.data
        x.requires_grad_()
        return data

    x = _numbers()
    data = jitney.compile(fn, backend=backend)(x)
    assert x.requires_grad and not data.requires_grad and data.data_ptr() == x.data_ptr()
