"""Views that autograd forbids to use, or to write to, where a graph break comes between: eager's error comes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney


class Shown(torch.autograd.Function):
    """A view of its argument."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


class Two(torch.autograd.Function):
    """Two views of its argument."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.view(-1), x[0]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0].view(2, 3)


def _read_after_a_write(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.no_grad():
        view = x[0]
    x.mul_(w)
    return view * 1


def _given_back_after_a_write(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.no_grad():
        view = x[0]
        view.mul_(w[0].detach())
    return x, view


def _view_of_a_view(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.no_grad():
        view = x[0]
        view = view[1:]
    x[1].mul_(w)
    return view.sum()


def _parts(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.no_grad():
        one, two = x.unbind()
    x.mul_(w)
    return one, two


def _view_is_written(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.no_grad():
        view = x[0]
    view.mul_(w)
    return x


def _part_is_written(x: torch.Tensor, w: torch.Tensor) -> Any:
    x.unbind()[0].mul_(w)
    return x


def _of_a_function(x: torch.Tensor, w: torch.Tensor) -> Any:
    view = Shown.apply(x)
    return view.mul_(w)


def _one_of_two(x: torch.Tensor, w: torch.Tensor) -> Any:
    view, _ = Two.apply(x * 1)
    return view.mul_(2)


PROGRAMS = [_read_after_a_write, _given_back_after_a_write, _view_of_a_view, _parts, _view_is_written,
            _part_is_written, _of_a_function, _one_of_two]  # fmt: skip


def _told(f: Callable[..., Any], kind: str, w_grad: bool, mode: Any) -> Any:
    x = torch.arange(6.0).view(2, 3).clone()
    x = x if kind == "plain" else x.requires_grad_()
    x = x * 1 if kind == "result" else x
    w = torch.full((3,), 2.0, requires_grad=w_grad)
    try:
        with mode:
            found = f(x, w)
        found = found if isinstance(found, tuple) else (found,)
        return [(r.detach().tolist(), r.requires_grad, r.is_leaf) for r in (*found, x)]
    except RuntimeError as error:
        return re.sub(r"of \w+ is", "of it is", str(error)).partition(" inplace")[0]  # a graph has its own name


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_errors_are_those_of_eager(program: Any, backend: str) -> None:
    raised = 0
    cases = [(kind, w_grad, contextlib.nullcontext) for kind in ("plain", "leaf", "result") for w_grad in (False, True)]
    for kind, w_grad, mode in [*cases, ("result", True, torch.no_grad)]:
        expected = _told(program, kind, w_grad, mode())
        assert _told(jitney.compile(program, backend=backend), kind, w_grad, mode()) == expected, (kind, w_grad, mode)
        raised += isinstance(expected, str)
    assert raised
