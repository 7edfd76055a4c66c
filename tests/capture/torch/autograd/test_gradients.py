"""``torch.autograd.grad`` in captured code: part of the graph, if all that it goes back over is in the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captured.table import leaf, t
from helpers import compile_fn, observe
from torch import nn
from torch.testing import assert_close as same

import jitney
from jitney.graph_compile.subgraphs import places_of


def test_a_gradient_penalty_is_one_graph_and_trains(backend: Any) -> None:
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def penalty(real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
        alpha = torch.rand(real.size(0), 1).expand_as(real)
        between = (alpha * real + (1 - alpha) * fake).detach().requires_grad_(True)
        out = critic(between)
        (grad,) = torch.autograd.grad(
            outputs=out,
            inputs=between,
            grad_outputs=torch.ones_like(out),
            create_graph=True,
            retain_graph=True,
            only_inputs=True,
        )
        return ((grad.norm(2, dim=1) - 1) ** 2).mean() * 10

    def step(fn: Any, n: int) -> list[Any]:
        torch.manual_seed(n)
        critic.zero_grad()
        loss = fn(t(n, 3), t(n, 3, seed=1))
        loss.backward()
        return [loss.detach(), *(p.grad for p in critic.parameters())]

    compiled = jitney.compile(penalty, backend=backend, fullgraph=True)
    for n in (4, 2, 5):
        same(step(compiled, n), step(penalty, n))


def test_second_derivatives_and_unused_inputs(backend: Any) -> None:
    def fn(x: torch.Tensor, v: torch.Tensor, other: torch.Tensor) -> Any:
        loss = (x**3).sum() + x[0] * x[1]
        (grad,) = torch.autograd.grad(loss, [x], create_graph=True)
        product, nothing = torch.autograd.grad(grad, (x, other), v, allow_unused=True)
        return grad.detach(), product, nothing

    compiled = jitney.compile(fn, backend=backend, fullgraph=True)
    args = leaf(3), t(3, seed=1), leaf(2)
    same(compiled(*args), fn(*args))


def test_steps_of_an_inner_loop_over_parameters(backend: Any) -> None:
    net = nn.Linear(3, 3)

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        fast = dict(net.named_parameters())
        for _ in range(2):
            loss = ((x @ fast["weight"].t() + fast["bias"] - y) ** 2).mean()
            grads = torch.autograd.grad(loss, fast.values(), create_graph=True)
            fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), grads, strict=True)}
        return ((x @ fast["weight"].t() + fast["bias"] - y) ** 2).mean()

    def step(call: Any) -> list[Any]:
        net.zero_grad()
        call(t(2, 3), t(2, 3, seed=1)).backward()
        return [p.grad for p in net.parameters()]

    same(step(jitney.compile(fn, backend=backend, fullgraph=True)), step(fn))


def test_what_was_computed_before_the_frame_is_gone_back_over_too() -> None:
    def fn(x: torch.Tensor, other: torch.Tensor) -> Any:
        return torch.autograd.grad((x * other).sum(), x)[0]

    compiled, x = compile_fn(fn), leaf(3)
    for make in (lambda: leaf(3, seed=1), lambda: x * 2, lambda: leaf(3, seed=1), lambda: x**2, lambda: t(3)):
        same(compiled(x, make()), fn(x, make()))


def test_a_gradient_of_what_the_frame_made_beside_what_was_computed_before() -> None:
    def fn(fake: torch.Tensor) -> Any:
        x = fake.detach().requires_grad_()
        return torch.autograd.grad((x * 2 + fake.mean()).sum(), x)[0]

    made = leaf(3) * 2
    with observe() as seen:
        same(compile_fn(fn, fullgraph=True)(made), fn(made))
    assert len(seen.graphs) == 1


def test_hooks_of_an_input_run_where_eager_runs_them() -> None:
    def fn(x: torch.Tensor) -> Any:
        return torch.autograd.grad((x**2).sum(), x)[0]

    compiled = compile_fn(fn)
    x = leaf(3)
    same(compiled(x), fn(x))
    seen: list[int] = []

    def hook(grad: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return grad * 2

    handle = x.register_hook(hook)
    same(compiled(x), fn(x))
    assert seen == [1, 1]
    handle.remove()
    same(compiled(x), fn(x))


@pytest.mark.parametrize("case", range(4))
def test_what_eager_refuses(case: int, backend: Any) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        if case == 0:
            return torch.autograd.grad(x.sum(), y)
        if case == 1:
            return torch.autograd.grad(x * 2, x)
        if case == 2:
            return torch.autograd.grad((x * 2).sum(), x, torch.ones(3))
        z = (x**2).sum()
        torch.autograd.grad(z, x)
        return torch.autograd.grad(z, x)

    messages = []
    for call in (jitney.compile(fn, backend=backend), fn):
        with pytest.raises(RuntimeError) as raised:
            call(leaf(3), leaf(3))
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_the_tape_is_used_up_as_in_eager(backend: Any) -> None:
    def fn(x: torch.Tensor) -> Any:
        loss = (x**2).sum()
        torch.autograd.grad(loss, x)
        return loss

    for call in (fn, jitney.compile(fn, backend=backend)):
        loss = call(leaf(3))
        with pytest.raises(RuntimeError, match="a second time"):
            loss.backward()


def test_sparse_gradients_are_not_in_the_graph() -> None:
    def fn(weight: torch.Tensor, ids: torch.Tensor) -> Any:
        out = nn.functional.embedding(ids, weight, sparse=True)
        return torch.autograd.grad(out.sum(), weight)[0].to_dense()

    args = leaf(4, 2), torch.tensor([1, 1, 3])
    same(compile_fn(fn)(*args), fn(*args))


def test_a_graph_with_a_gradient_stays_in_one_piece() -> None:
    graphs: list[Any] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append((graph, [n.meta["example_value"] for n in graph.graph.nodes if n.op == "placeholder"]))
        return graph.forward

    def fn(x: torch.Tensor) -> Any:
        (grad,) = torch.autograd.grad((x.exp() * 2).sum(), x)
        return grad.sin().cos()

    jitney.compile(fn, backend=keep)(leaf(3))
    assert places_of(*graphs[0]) == []


def thaws(leaf: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    leaf.requires_grad_(True)
    return other * 2


def freezes(leaf: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    leaf.requires_grad_(False)
    return other * 2


def gives_back_a_view(leaf: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    view = leaf.view(-1)
    with torch.no_grad():
        leaf.mul_(2)
    leaf.requires_grad_(False)
    return view


def gives_back_a_view_before(leaf: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    view = leaf.view(-1)
    leaf.requires_grad_(False)
    with torch.no_grad():
        leaf.mul_(2)
    return view


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_views_of_a_leaf_whose_requires_grad_changes(backend: str) -> None:
    def apart(leaf: torch.Tensor) -> torch.Tensor:
        return torch.ones(3)

    def view(leaf: torch.Tensor) -> torch.Tensor:
        return leaf.view(-1)

    for fn, grad, others in (
        (thaws, False, (apart, view, apart)),
        (thaws, False, (view, apart)),
        (freezes, True, (apart, view, apart)),
        (freezes, True, (view, apart)),
        (gives_back_a_view, True, (apart,)),
        (gives_back_a_view_before, True, (apart,)),
    ):
        compiled = jitney.compile(fn, backend=backend)
        for other in others:
            seen = []
            for call in (fn, compiled):
                leaf = torch.ones(3, requires_grad=grad)
                given = other(leaf)
                made = call(leaf, given)
                seen.append((made.tolist(), *(m.requires_grad for m in (made, leaf, given)), made.grad_fn is None))
            assert seen[0] == seen[1], (fn.__name__, other.__name__)
