"""The engine's walk: it goes on through a compiled graph where it would in eager, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aot.sides import same
from helpers import compile_fn, t

from jitney.errors import JitneyError


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


def test_a_second_derivative_that_is_refused_is_an_error_however_it_is_asked_for() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x + torch.rand(()) * 0).sum()

    compiled = compile_fn(program, backend="aot_eager")
    for inner in (False, True):
        x = t(3, requires_grad=True)
        given = x * 2 if inner else x
        value = compiled(given)
        (gradient,) = torch.autograd.grad(value, x, create_graph=True)
        (wanted,) = torch.autograd.grad(program(x * 2 if inner else x), x)
        torch.testing.assert_close(gradient.detach(), wanted)
        for ask in (
            lambda: torch.autograd.grad(gradient.sum(), x, allow_unused=True, retain_graph=True),
            lambda: torch.autograd.grad(gradient.sum(), x, retain_graph=True),
            lambda: gradient.pow(2).sum().backward(retain_graph=True),
        ):
            with pytest.raises(JitneyError, match="double backward"):
                ask()
    with pytest.raises(JitneyError, match="double backward"):
        torch.autograd.functional.hessian(compiled, t(3))
    with pytest.raises(JitneyError, match="double backward"):
        torch.autograd.functional.jvp(compiled, t(3), t(3))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch.func's own
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("warm", [False, True])
def test_transforms_around_compiled_functions_see_the_program(backend: str, warm: bool) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x).sum()

    compiled = compile_fn(program, backend=backend)
    x = t(4, 3)
    if warm:
        compiled(x[0])
    for transform in (
        lambda f: torch.func.vmap(f)(x),
        lambda f: torch.func.grad(f)(x[0]),
        lambda f: torch.func.jacrev(f)(x[0]),
        lambda f: torch.func.hessian(f)(x[0]),
        lambda f: torch.func.vmap(torch.func.grad(f))(x),
        lambda f: torch.func.jvp(f, (x[0],), (x[1],)),
    ):
        torch.testing.assert_close(transform(compiled), transform(program))
    torch.testing.assert_close(compiled(x[0]), program(x[0]))


def test_anomaly_mode_is_not_on_while_tracing() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sum()

    with torch.autograd.set_detect_anomaly(True):  # false warnings would be errors here
        same(program, lambda: (t(2, 3, requires_grad=True), t(3, 4, requires_grad=True)), poke=False)
        assert torch.is_anomaly_enabled()


def test_anomaly_mode_finds_what_is_no_number_in_a_compiled_backward() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * 0).sqrt().sum() * 0

    compiled = compile_fn(program, backend="aot_eager")
    for run in (program, compiled):
        with torch.autograd.set_detect_anomaly(True), pytest.warns(UserWarning, match="Error detected in") as warned:
            with pytest.raises(RuntimeError, match="returned nan values"):
                run(t(3, requires_grad=True)).backward()
        assert len(warned) == 1
