"""A backward whose compiled form takes its inputs as a list: what it reads may die while it runs."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import jitney
from jitney.backends import Backend, CompileRequest
from jitney.config import config


class Boxing:
    """A backend that notes, in each boxed call, how many of its inputs are alive once the list is empty."""

    def __init__(self) -> None:
        self.alive: list[int] = []
        self.fails = False

    def compile(self, graph: Any, inputs: Sequence[Any], request: CompileRequest) -> Any:
        forward = graph.forward

        def run(*given: Any) -> Any:
            return forward(*given)

        def boxed(given: list[Any]) -> Any:
            if self.fails:
                raise torch.OutOfMemoryError("no memory")
            copies = [g.clone() if isinstance(g, torch.Tensor) else g for g in given]
            watched = [weakref.ref(g) for g in given if isinstance(g, torch.Tensor)]
            given.clear()
            self.alive.append(sum(ref() is not None for ref in watched))
            return forward(*copies)

        run.boxed = boxed  # type: ignore[attr-defined]
        return run


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).sin().exp() @ w


@pytest.fixture
def boxing(monkeypatch: pytest.MonkeyPatch) -> Boxing:
    monkeypatch.setattr(config, "verify", False)
    return Boxing()


def leaves() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


def test_what_is_saved_dies_while_the_backward_runs(boxing: Boxing) -> None:
    compiled = jitney.compile(program, backend=Backend("boxing", boxing.compile, level="aten"))
    for step in range(3):
        x, w = leaves()
        made = compiled(x, w)
        wanted = torch.autograd.grad(program(x, w).sum(), (x, w))
        found = torch.autograd.grad(made.sum(), (x, w))
        torch.testing.assert_close(found, wanted)
        assert len(boxing.alive) == step  # the first results are looked at with all at hand
    assert max(boxing.alive) <= 3  # the leaves and the tangent


def test_what_is_saved_stays_for_a_graph_that_is_kept(boxing: Boxing) -> None:
    compiled = jitney.compile(program, backend=Backend("boxing", boxing.compile, level="aten"))
    x, w = leaves()
    made = compiled(x, w).sum()
    wanted = torch.autograd.grad(program(x, w).sum(), (x, w))
    for kept in (True, True, True, False):
        torch.testing.assert_close(torch.autograd.grad(made, (x, w), retain_graph=kept), wanted)
    assert boxing.alive[0] == boxing.alive[1] > boxing.alive[2]
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(made, (x, w))


def test_under_verify_nothing_dies(boxing: Boxing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "verify", True)
    compiled = jitney.compile(program, backend=Backend("boxing", boxing.compile, level="aten"))
    for _ in range(3):
        x, w = leaves()
        compiled(x, w).sum().backward()
    assert not boxing.alive


def test_an_error_is_the_error_that_it_was(boxing: Boxing) -> None:
    compiled = jitney.compile(program, backend=Backend("boxing", boxing.compile, level="aten"))
    x, w = leaves()
    compiled(x, w).sum().backward()
    boxing.fails = True
    with pytest.raises(torch.OutOfMemoryError, match="no memory"):
        compiled(x, w).sum().backward()
    boxing.fails = False
    x.grad = w.grad = None
    compiled(x, w).sum().backward()
    torch.testing.assert_close([x.grad, w.grad], list(torch.autograd.grad(program(x, w).sum(), (x, w))))
