"""The engine's walk: it goes on through a compiled graph where it would in eager, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import compile_fn, t


def test_an_input_whose_gradient_does_not_exist_is_no_edge() -> None:
    """The step before may have freed its graph already."""

    def program(w: torch.Tensor, last: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (w * last.detach()).sum(), last.detach()

    compiled = compile_fn(program, backend="aot_eager")
    grads = []
    for fn in (program, compiled):
        w = t(3, requires_grad=True)
        loss = (w * 2).exp().sum()
        loss.backward()
        for _ in range(3):
            loss, _ = fn(w, loss)
            loss.backward()
        grads.append(w.grad)
    torch.testing.assert_close(*grads)


def test_a_freed_graph_behind_an_unused_result_is_not_entered() -> None:
    """Two compiled graphs in a row: the second's loss needs nothing of one result of the first."""

    def first(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return w.exp(), w.sin()

    def second(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a.cos(), b.tanh()

    def run(wrap: Any) -> Any:
        u, v = t(3, requires_grad=True), t(3, requires_grad=True) + 0
        one, two, other = wrap(first), wrap(second), wrap(first)
        a, _ = one(u)
        b, _ = other(v)
        b.sum().backward(retain_graph=False)
        x, _ = two(a, b)
        x.sum().backward()
        return u.grad

    torch.testing.assert_close(run(lambda f: compile_fn(f, backend="aot_eager")), run(lambda f: f))


def test_a_write_without_grad_is_seen_by_the_version_counter() -> None:
    """What was saved before an optimizer's step may not be used after it, as in eager."""

    def update(w: torch.Tensor) -> None:
        with torch.no_grad():
            w.sub_(1.0)

    compiled = compile_fn(update, backend="aot_eager")
    for write in (update, compiled):
        w = t(3, requires_grad=True)
        loss = (w * w).sum()
        before = w._version
        write(w)
        assert w._version == before + 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
