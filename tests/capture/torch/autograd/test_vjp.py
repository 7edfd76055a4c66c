"""What ``torch.func.vjp`` and ``linearize`` return works on what was there when they were called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import observe, t
from torch.func import functional_call, grad, jacrev, linearize, vjp, vmap

import jitney

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),  # torch's own forward-mode formulas
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),  # of linearize's
]
LINEAR = torch.nn.Linear(3, 3)


def f(a: torch.Tensor) -> torch.Tensor:
    return a.sin() * a


def twice(x: torch.Tensor) -> Any:
    out, pull = vjp(f, x)
    return out, pull(x), pull(out)


def besides(x: torch.Tensor) -> Any:
    out, pull, aux = vjp(lambda a: (f(a), a * 3), x, has_aux=True)
    return out, aux, pull(x)


def containers(x: torch.Tensor) -> Any:
    out, pull = vjp(lambda a, b: {"u": (a * b).sum(), "v": [a - b]}, x, x.cos())
    return out, pull({"u": torch.ones(()), "v": [x]})


def of_a_batch(x: torch.Tensor) -> Any:
    _, pull = vjp(lambda a: a.sin() * a.sum(), x)
    return vmap(pull)(torch.eye(x.shape[0]))


def inside_grad(x: torch.Tensor) -> Any:
    return grad(lambda v: vjp(lambda a: a.sin() * v, v)[1](v)[0].sum())(x)


def inside_vmap(x: torch.Tensor) -> Any:
    return vmap(lambda r: vjp(torch.sin, r)[1](r)[0])(torch.stack([x, x * 2]))


def in_a_loop(x: torch.Tensor) -> Any:
    _, pull = vjp(f, x)
    for _ in range(3):
        (x,) = pull(x)
    return x


def in_a_container(x: torch.Tensor) -> Any:
    held = {"pull": vjp(f, x)[1]}
    return held["pull"](x)


def of_a_module(x: torch.Tensor) -> Any:
    out, pull = vjp(LINEAR, x)
    return out, pull(x)


def of_parameters(x: torch.Tensor) -> Any:
    out, pull = vjp(lambda p: functional_call(LINEAR, p, (x,)), dict(LINEAR.named_parameters()))
    return out, pull(x)


def a_number_that_changes(x: torch.Tensor) -> Any:
    scale = 2.0

    def scaled(a: torch.Tensor) -> torch.Tensor:
        return a * scale

    _, pull = vjp(scaled, x)
    scale = 5.0
    return pull(x), scaled(x)


def dropped_before_a_break(x: torch.Tensor) -> Any:
    out, pull = vjp(f, x)
    y = pull(out)[0]
    del pull
    jitney.graph_break()
    return y + 1


def linear(x: torch.Tensor) -> Any:
    x = x.detach()
    out, push = linearize(f, x)
    return out, push(x), push(out)


def linear_of_containers(x: torch.Tensor) -> Any:
    x = x.detach()
    out, push = linearize(lambda a, b: (a * b["k"]).sum(), x, {"k": x.cos()})
    return out, push(x, {"k": x})


def by_map(x: torch.Tensor) -> Any:
    out, pull = vjp(f, x)
    return list(map(pull, [x, out]))


WHOLE = [
    twice, besides, containers, of_a_batch, inside_grad, inside_vmap, in_a_loop, in_a_container, of_a_module,
    of_parameters, a_number_that_changes, linear, linear_of_containers, by_map,
]  # fmt: skip


def after_a_break(x: torch.Tensor) -> Any:
    out, pull = vjp(f, x)
    jitney.graph_break()
    return pull(out)[0] + pull(x)[0]


def after_a_write(x: torch.Tensor) -> Any:
    w = x.clone()
    _, pull = vjp(lambda a: a + w.detach() * 2, x)
    w.add_(1)
    return pull(x), w


def after_another_write(x: torch.Tensor) -> Any:
    w = x.detach().clone()
    _, pull = vjp(lambda a: a.sin() * 2, w)
    w.add_(1)
    return pull(x)


def after_its_result_was_written_to(x: torch.Tensor) -> Any:
    out, pull = vjp(torch.exp, x.detach())  # eager keeps the result, and does not ask whether it has changed
    out.view(-1)[0] *= 2
    return out, pull(torch.ones_like(x))


def after_a_write_past_autograd(x: torch.Tensor) -> Any:
    w = x.detach().clone().add_(1)
    _, pull = vjp(lambda a: a.sin().exp(), w)
    w.data.add_(1)
    return pull(torch.ones_like(x))


def of_what_writes_past_autograd(x: torch.Tensor) -> Any:
    def counts(a: torch.Tensor) -> torch.Tensor:
        a.data.add_(1)
        return a.sin()

    w = x.detach().clone()
    out, pull = vjp(counts, w)
    return out, pull(out), w


def of_batch_norm_in_training(x: torch.Tensor) -> Any:
    mean, var = torch.zeros(3), torch.ones(3)
    rows = torch.arange(6.0).view(2, 3)
    out, pull = vjp(lambda a: F.batch_norm(a * rows, mean, var, training=True), x.detach())
    return out, pull(rows), mean, var


def in_another_grad_mode(x: torch.Tensor) -> Any:
    with torch.no_grad():
        out, pull = vjp(f, x)
    return out, pull(x)


def random(x: torch.Tensor) -> Any:
    out, pull = vjp(lambda a: F.dropout(a, 0.5), x)
    return out, pull(torch.ones_like(x))


def keeping_the_graph(x: torch.Tensor) -> Any:
    return vjp(f, x)[1](x, retain_graph=False)


def linear_of_what_requires_grad(x: torch.Tensor) -> Any:
    return linearize(f, x.clone().requires_grad_())[1](x)


def linear_of_grad(x: torch.Tensor) -> Any:
    return linearize(grad(lambda a: f(a).sum()), x.detach())[1](x.detach())


def linear_of_a_jacobian(x: torch.Tensor) -> Any:
    return linearize(jacrev(f), x.detach())[1](x.detach())


BROKEN = [
    after_a_break, after_a_write, after_another_write, in_another_grad_mode, random, keeping_the_graph,
    dropped_before_a_break, linear_of_what_requires_grad, linear_of_grad, linear_of_a_jacobian,
    after_its_result_was_written_to, after_a_write_past_autograd, of_what_writes_past_autograd,
    of_batch_norm_in_training,
]  # fmt: skip


def told(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> tuple[Any, Any]:
    """What it gives with its gradients, and how many results have some or which error there is."""
    torch.manual_seed(0)
    try:
        found = fn(x)
        tracked = [leaf for leaf in torch.utils._pytree.tree_leaves(found) if leaf.requires_grad]
    except Exception as error:
        return None, type(error)
    try:
        return (found, torch.autograd.grad(sum(v.sum() for v in tracked), [x]) if tracked else []), len(tracked)
    except RuntimeError:  # written to, or no way to ``x``
        return found, RuntimeError


def same(fn: Callable[[torch.Tensor], Any], backend: str, **options: Any) -> None:
    compiled = jitney.compile(fn, backend=backend, **options)
    for scale in (1.0, -0.5):
        for requires_grad in (False, True):
            sides = []
            for run in (compiled, fn):
                x = (torch.tensor([0.3, 0.5, -0.2]) * scale).requires_grad_(requires_grad)
                sides.append(told(run, x))
            assert sides[0][1] == sides[1][1]
            torch.testing.assert_close(sides[0][0], sides[1][0])


@pytest.mark.parametrize("backend", ["eager", "llvm_cpu"])
@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_what_is_returned_is_part_of_the_graph(fn: Callable[[torch.Tensor], Any], backend: str) -> None:
    same(fn, backend, fullgraph=True)


@pytest.mark.parametrize("fn", BROKEN, ids=lambda fn: fn.__name__)
def test_what_a_graph_cannot_say_is_a_break(fn: Callable[[torch.Tensor], Any]) -> None:
    same(fn, "aot_eager")
    with observe() as seen:
        jitney.compile(fn, backend="eager")(t(3))
    assert seen.breaks


def test_a_pullback_that_leaves_is_eagers() -> None:
    def leaves(x: torch.Tensor) -> Any:
        return vjp(f, x * 2)[1]

    x = t(3)
    with observe() as seen:
        pull = jitney.compile(leaves, backend="eager")(x)
    torch.testing.assert_close(pull(x), leaves(x)(x))
    assert "needed after the graph" in seen.breaks[0] and ":" in seen.breaks[0]


def test_the_function_is_computed_once_where_equal_operators_are_merged() -> None:
    kinds: list[str] = []

    def listener(event: Any) -> None:
        if isinstance(event, jitney.events.AtenGraph) and event.kind == "inference":
            kinds.extend(str(node.target) for node in event.graph.nodes)

    with jitney.events.listen(listener):
        jitney.compile(twice, backend="aot_eager")(t(3))
    assert kinds.count("aten.sin.default") == 1


@pytest.mark.parametrize(
    "fn", [lambda x: vjp(f, x)[1](x, x), lambda x: vjp(f, x)[1]([x]), lambda x: vjp(lambda a: 3, x), lambda x: vjp(f)]
)
def test_what_is_wrong_is_torchs_error(fn: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(Exception) as wanted:
        fn(t(3))
    with pytest.raises(wanted.type):
        jitney.compile(fn, backend="eager")(t(3))
