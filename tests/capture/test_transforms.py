"""``torch.func``'s transforms in compiled functions, and compiled functions that call what they have made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import check
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

import jitney

# Torch's own forward-mode formulas are TorchScript.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")

Function = Callable[[torch.Tensor], torch.Tensor]
WEIGHT = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
LINEAR = torch.nn.Linear(4, 4)

# From four numbers to four, differentiable.
FUNCTIONS: dict[str, Function] = {
    "sin": lambda x: x.sin() * x,
    "softmax": lambda x: x.softmax(0),
    "product with a matrix": lambda x: WEIGHT @ x,
    "linear": lambda x: LINEAR(x).tanh(),
    "layer norm": lambda x: F.layer_norm(x, (4,)),
    "gelu": lambda x: F.gelu(x) + x.square().mean(),
    "where": lambda x: torch.where(x > 0, x.exp(), x * 2),
    "cumsum": lambda x: x.cumsum(0) * x.flip(0),
    "outer product": lambda x: torch.outer(x, x).sum(0),
    "indexing": lambda x: torch.stack([x[0] * x[1], x[2], x[-1], x[:2].sum()]),
    "in place on its own": lambda x: x.clone().mul_(2).add_(x),
    "loop": lambda x: sum((x**n / (n + 1) for n in range(4)), x),
    "max": lambda x: x * x.max(),
    "norm": lambda x: x / x.norm(),
    "roll and cat": lambda x: torch.cat([x[1:], x[:1]]).roll(1) * x,
    "einsum": lambda x: torch.einsum("i,ij->j", x, WEIGHT),
    "solve": lambda x: torch.linalg.solve(torch.eye(4) * 3 + torch.outer(x, x), x),
    "logsumexp": lambda x: x - x.logsumexp(0),
    "sigmoid and log": lambda x: x.sigmoid().log() * 0.5,
    "gather": lambda x: x.gather(0, torch.tensor([3, 1, 0, 2])),
    "view": lambda x: x.view(2, 2).t().reshape(4) * 3,
    "branch on a shape": lambda x: x * 2 if x.shape[0] > 3 else x,
    "detach": lambda x: x * x.detach(),
    "no grad": lambda x: x * 1.5 + x.sqrt().nan_to_num(),
    "mse": lambda x: x * F.mse_loss(x, torch.ones(4)),
    "clamp": lambda x: x.clamp(-0.5, 0.5) + x,
    "atan2": lambda x: torch.atan2(x, x.flip(0) + 2),
    "prod": lambda x: x * x.prod(),
    "var": lambda x: x * x.var(),
    "conv": lambda x: F.conv1d(x.view(1, 1, 4), torch.ones(1, 1, 3), padding=1).view(4),
}

TRANSFORMS: dict[str, Callable[[Function], Callable[[torch.Tensor], Any]]] = {
    "grad": lambda f: grad(lambda x: f(x).sum()),
    "grad_and_value": lambda f: grad_and_value(lambda x: f(x).square().sum()),
    "vmap": lambda f: lambda x: vmap(f)(torch.stack([x, x + 1])),
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "jvp": lambda f: lambda x: jvp(f, (x,), (x.cos(),)),
    "hessian": lambda f: hessian(lambda x: f(x).sum()),
    "vmap of grad": lambda f: lambda x: vmap(grad(lambda r: f(r).sum()))(torch.stack([x, x + 1])),
    "grad of vmap": lambda f: grad(lambda x: vmap(f)(torch.stack([x, x + 1])).sum()),
    "grad of grad": lambda f: grad(lambda x: grad(lambda y: f(y).sum())(x).square().sum()),
    "vmap of jacrev": lambda f: lambda x: vmap(jacrev(f))(torch.stack([x, x + 1])),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_transform_is_captured_and_gives_the_same(name: str) -> None:
    f = FUNCTIONS[name]

    def everything(x: torch.Tensor) -> list[Any]:
        return [transform(f)(x) for transform in TRANSFORMS.values()]

    x = torch.tensor([0.3, -0.7, 1.1, 0.4])
    compiled = jitney.compile(everything, backend="aot_eager", fullgraph=True)
    for value in (x, x * 0.9):
        torch.testing.assert_close(compiled(value), everything(value), equal_nan=True)


CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "several arguments": lambda x: grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x.cos()),
    "the second argument": lambda x: grad(lambda a, b: (a * b).sum(), argnums=1)(x, x.cos()),
    "a number beside it": lambda x: grad(lambda a, s: (a * s).sum())(x, 3.0),
    "what is returned besides": lambda x: grad(lambda a: (a.sum(), a * 2), has_aux=True)(x),
    "a dictionary": lambda x: grad(lambda p: (p["a"] * p["b"][0]).sum())({"a": x, "b": [x.cos()]}),
    "dimensions": lambda x: vmap(torch.dot, in_dims=(0, 1))(x, x),
    "one that is not mapped": lambda x: vmap(lambda a, b: a * b, in_dims=(0, None))(x, x[0]),
    "dimensions in a dictionary": lambda x: vmap(lambda d: d["a"] + d["b"], in_dims=({"a": 0, "b": None},))(
        {"a": x, "b": x[0]}
    ),
    "the results' dimension": lambda x: vmap(lambda a: a * 2, out_dims=1)(x),
    "keywords": lambda x: vmap(lambda a, b: a * b)(x, b=x[0]),
    "a list": lambda x: vmap(lambda items: items[0] + items[1])([x, x]),
    "pieces": lambda x: vmap(lambda a: a.exp(), chunk_size=2)(x),
    "three levels": lambda x: vmap(vmap(grad(torch.sin)))(x),
    "random numbers": lambda x: vmap(F.dropout, randomness="different")(x),
    "dropout": lambda x: grad(lambda a: F.dropout(a, 0.5).sum())(x),
    "jvp with more": lambda x: jvp(lambda a, b: (a * b, a + b), (x, x.cos()), (x.sin(), x), has_aux=True),
    "a constant of the function's": lambda x: grad(lambda a: (a * x.detach()).sum())(x),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALLS)
def test_calls_of_all_kinds(name: str, backend: str) -> None:
    fn = CALLS[name]
    compiled = jitney.compile(fn, backend=backend, fullgraph=True)
    for seed in range(2):
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
        sides = []
        for run in (fn, compiled):
            torch.manual_seed(0)
            sides.append(run(x))
        torch.testing.assert_close(sides[1], sides[0])


made_before = {
    "grad": grad(lambda x: x.sin().sum()),
    "grad_and_value": grad_and_value(lambda x: x.sin().sum(), argnums=(0,)),
    "vmap": vmap(lambda x: x.softmax(0), in_dims=1, out_dims=1),
    "vmap of grad": vmap(grad(lambda x: x.sin().sum())),
}


@pytest.mark.parametrize("name", made_before)
def test_what_was_transformed_before_is_captured(name: str) -> None:
    transformed = made_before[name]

    def fn(x: torch.Tensor) -> Any:
        return transformed(x * 2)

    check(fn, torch.randn(4, 4), graphs=1, breaks=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_go_through_a_transform(backend: str) -> None:
    def penalty(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return vmap(grad(lambda r: (w @ r).sin().sum()))(x).square().sum()

    sides = []
    for run in (penalty, jitney.compile(penalty, backend=backend, fullgraph=True)):
        x, w = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), WEIGHT.clone().requires_grad_()
        x.requires_grad_()
        loss = run(x, w)
        loss.backward()
        sides.append((loss.detach(), x.grad, w.grad))
    torch.testing.assert_close(sides[1], sides[0])


def test_a_scale_that_changes_is_guarded() -> None:
    class Scale:
        value = 2.0

    def fn(x: torch.Tensor) -> torch.Tensor:
        return grad(lambda a: (a * a * Scale.value).sum())(x)

    compiled = jitney.compile(fn, backend="eager")
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), fn(x))
    Scale.value = 5.0
    torch.testing.assert_close(compiled(x), fn(x))


# --- what a graph cannot say ---------------------------------------------------------------------------------------


def appends(x: torch.Tensor) -> Any:
    seen: list[Any] = []

    def f(a: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return a.sin().sum()

    return grad(f)(x), seen


class Holder:
    calls = 0


def counts(x: torch.Tensor) -> Any:
    holder = Holder()

    def f(a: torch.Tensor) -> torch.Tensor:
        holder.calls += 1
        return a.sin().sum()

    return grad(f)(x), holder.calls


def writes_to_an_argument(x: torch.Tensor) -> Any:
    y = x.clone()
    return grad(lambda a: a.mul_(2).sum())(y), y


def writes_to_another(x: torch.Tensor) -> Any:
    y = x.clone()

    def f(a: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return (a * y).sum()

    return grad(f)(x), y


def returns_numbers(x: torch.Tensor) -> Any:
    return grad(lambda a: (a.sum(), 3), has_aux=True)(x)


def pulls_back(x: torch.Tensor) -> Any:
    out, pull = vjp(lambda a: a.sin() * a, x)
    return out, pull(x)


def hands_on(x: torch.Tensor) -> Any:
    return grad(lambda a: a.sin().sum()), x + 1


def reads_a_value(x: torch.Tensor) -> Any:
    return grad(lambda a: a.sum() * float(x.sum()))(x)


OTHERWISE = [
    appends,
    counts,
    pulls_back,
    reads_a_value,
]


@pytest.mark.parametrize("fn", OTHERWISE, ids=lambda fn: fn.__name__)
def test_what_a_graph_cannot_say_runs_as_in_eager(fn: Callable[[torch.Tensor], Any]) -> None:
    compiled = jitney.compile(fn, backend="eager")
    for _ in range(2):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x.clone()), fn(x.clone()))


def test_a_transform_that_leaves_the_function_still_works() -> None:
    transformed, y = jitney.compile(hands_on, backend="eager")(torch.ones(3))
    torch.testing.assert_close(transformed(torch.ones(3)), torch.ones(3).cos())
    torch.testing.assert_close(y, torch.full((3,), 2.0))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: vmap(lambda a: a, in_dims=3)(x),
        lambda x: vmap(lambda a: a)(3),
        lambda x: grad(lambda a: a)(x),
        lambda x: vmap(F.dropout)(x),
        lambda x: jvp(lambda a: a, x, x),
        writes_to_an_argument,
        writes_to_another,
        returns_numbers,
    ],
)
def test_what_is_wrong_is_torchs_error(fn: Callable[[torch.Tensor], Any]) -> None:
    x = torch.randn(4)
    with pytest.raises(Exception) as wanted:
        fn(x)
    with pytest.raises(wanted.type):
        jitney.compile(fn, backend="eager")(x)


def test_sizes_that_change_break_and_are_right() -> None:
    compiled = jitney.compile(lambda x: vmap(lambda a: a * a.shape[0])(x), backend="eager", dynamic=True)
    for n in (3, 4, 5):
        x = torch.randn(n, n + 1)
        torch.testing.assert_close(compiled(x), x * (n + 1))
