"""Gradients that a frame turns on where its caller has turned them off: views and writes made there are autograd's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney


def _writes(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.enable_grad():
        y[:1] = x[:1]
    return y


def _writes_twice(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.enable_grad():
        y.mul_(x)
    y.mul_(2)


def _reshapes(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.enable_grad():
        y.unsqueeze_(0)
        y.mul_(x)


def _view(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.enable_grad():
        view = x[:1]
    return view, view[None]


def _view_of_result(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.enable_grad():
        double = x * 2
        return double, double[:1], double.unbind()


def _view_of_written(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.enable_grad():
        y.mul_(x)
        return y[:1]


def _quiet_view(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.enable_grad():
        double = x * 2
    return double, double[:1], x[:2]


def _after_a_break(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.no_grad():
        x.tolist()
    y[:1] = x[:1]


PROGRAMS = [_writes, _writes_twice, _reshapes, _view, _view_of_result, _view_of_written, _quiet_view, _after_a_break]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in _tensors(item)]
    return [] if value is None else [value]


def _facts(run: Callable[..., Any], mode: Any) -> list[Any]:
    x, y = torch.ones(3, requires_grad=True), torch.ones(3)
    with mode():
        results = _tensors(run(x, y))
    facts: list[Any] = []
    for tensor in (*results, y):
        grad = None
        if tensor.grad_fn is not None:
            (grad,) = torch.autograd.grad(tensor.sum(), x, retain_graph=True, allow_unused=True)
        facts.append((tensor.requires_grad, tuple(tensor.shape), grad if grad is None else grad.tolist()))
    return facts


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_was_made_with_gradients_on_has_them(program: Callable[..., Any], mode: Any) -> None:
    assert _facts(jitney.compile(program, backend="aot_eager"), mode) == _facts(program, mode)
