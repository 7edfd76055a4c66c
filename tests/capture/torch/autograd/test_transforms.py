"""``torch.func``'s transforms in compiled functions, and compiled functions that call what they have made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import check, observe
from torch.autograd import forward_ad
from torch.func import functional_call, grad, grad_and_value, jacfwd, jacrev, jvp, vjp, vmap
from transform_cases import FUNCTIONS, TRANSFORMS, WEIGHT, pairs, vector

import jitney

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning"),  # torch's own forward-mode formulas
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),  # of linearize's
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # of vmap's, where it has no rule
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_transform_is_captured_and_gives_the_same(name: str) -> None:
    f, x = FUNCTIONS[name], torch.tensor([0.3, -0.7, 1.1, 0.4])
    made = [transform(f) for transform in TRANSFORMS.values()]
    for outer, inner in pairs(name):
        nested = TRANSFORMS[outer](vector(TRANSFORMS[inner](f)))
        with contextlib.suppress(RuntimeError):  # the third derivative of a norm is more than torch can do
            nested(x)
            made.append(nested)

    def everything(x: torch.Tensor) -> list[Any]:
        return [transformed(x) for transformed in made]

    compiled = jitney.compile(everything, backend="llvm_cpu", fullgraph=True)
    for value in (x, x * 0.9):
        found, wanted = compiled(value), everything(value)
        torch.testing.assert_close(found, wanted, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_what_a_transform_gives_is_compiled(name: str) -> None:
    transformed = TRANSFORMS[name](lambda x: x.sin() * x.sum())
    compiled = jitney.compile(transformed, backend="aot_eager", fullgraph=True)
    x = torch.tensor([0.3, -0.7, 1.1, 0.4])
    torch.testing.assert_close(compiled(x), transformed(x))


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
    "a Jacobian of a product with a number, mapped": lambda x: vmap(jacfwd(lambda a: a * 2))(x),
    "jvp with more": lambda x: jvp(lambda a, b: (a * b, a + b), (x, x.cos()), (x.sin(), x), has_aux=True),
    "a constant of the function's": lambda x: grad(lambda a: (a * x.detach()).sum())(x),
}


@pytest.mark.parametrize("backend", ["eager", "llvm_cpu"])
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


def hands_on(x: torch.Tensor) -> Any:
    return grad(lambda a: a.sin().sum()), x + 1


def reads_a_value(x: torch.Tensor) -> Any:
    return grad(lambda a: a.sum() * float(x.sum()))(x)


OTHERWISE = [
    appends,
    counts,
    reads_a_value,
]


@pytest.mark.parametrize("fn", OTHERWISE, ids=lambda fn: fn.__name__)
def test_what_a_graph_cannot_say_runs_as_in_eager(fn: Callable[[torch.Tensor], Any]) -> None:
    compiled = jitney.compile(fn, backend="eager")
    for _ in range(2):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x.clone()), fn(x.clone()))


def test_a_transform_in_a_loop_that_a_break_has_cut() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        for scale in range(1, 4):
            jitney.graph_break()
            x = grad(lambda a: (a * scale).sin().sum())(x)  # noqa: B023
        return x

    check(fn, torch.randn(4))


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


LAYER = torch.nn.Linear(3, 3)
SIZES: dict[str, Callable[[torch.Tensor], Any]] = {
    "of an example": lambda x: vmap(lambda a: a * a.shape[0])(x),
    "of what is around": lambda x: (x * x.shape[0], vmap(lambda a: a * (x.shape[0] + 1))(x)),
    "among the arguments": lambda x: grad(lambda a, n: (a * n).sum())(x, x.shape[0]),
    "in views": lambda x: grad(lambda a: a.view(-1).softmax(0).square().sum())(x),
    "made there": lambda x: vmap(lambda a: a + torch.zeros(x.shape[0]).sum())(x),
    "as an expression": lambda x: grad(lambda a: (a * (x.shape[0] * 2 + 1)).reshape(x.shape[1], -1).sum())(x),
    "two levels deep": lambda x: vmap(grad(lambda a: (a.sin() * a).sum()))(x),
    "of Jacobians": lambda x: (jacrev(torch.sin)(x[0]), jacfwd(lambda a: a.sin() * a)(x[0])),
    "of a pullback": lambda x: vjp(lambda a: a.sin().sum(0), x)[1](x[0]),
    "of examples of parameters": lambda x: vmap(
        grad(lambda p, v: functional_call(LAYER, p, (v[:3],)).square().sum()), in_dims=(None, 0)
    )(dict(LAYER.named_parameters()), x),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_change_are_inputs_of_the_functions_graph(name: str) -> None:
    fn = SIZES[name]
    compiled = jitney.compile(fn, backend="llvm_cpu", dynamic=True, fullgraph=True)
    with observe() as seen:
        for rows, columns in ((4, 5), (5, 7), (9, 6)):
            x = torch.randn(rows, columns)
            torch.testing.assert_close(compiled(x), fn(x))
    assert len(seen.graphs) == 1


def test_a_size_that_torch_does_not_take_is_a_break() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return vmap(lambda a: a.sum() / a.shape[0])(x)

    compiled = jitney.compile(fn, backend="eager", dynamic=True)
    for n in (3, 4, 5):
        x = torch.randn(n, n + 1)
        torch.testing.assert_close(compiled(x), fn(x))


def outside() -> torch.nn.Parameter:
    weight = torch.nn.Parameter(torch.full((3,), 2.0))
    weight.grad = torch.ones(3)
    weight.flag = True  # type: ignore[attr-defined]
    return weight


ASKS: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "gradient": lambda x, w: vmap(lambda v: v + (0 if w.grad is None else w.grad))(x),
    "attribute": lambda x, w: vmap(lambda v: v * (3 if hasattr(w, "flag") and w.flag else 1))(x),
    "leaf": lambda x, w: vmap(lambda v: v + w.detach() * w.is_leaf)(x),
    "of grad": lambda x, w: grad(lambda v: (v * w.detach()).sum() + (1 if w.grad is None else 2) * v.sum())(x),
    "of cond": lambda x, w: torch.cond(x.sum() > 0, lambda v: v * (2 + w.flag), lambda v: v - 1, (x,)),
}


@pytest.mark.parametrize("name", ASKS)
def test_a_function_asks_a_tensor_from_outside_what_it_asks_in_eager(name: str) -> None:
    weight = outside()
    compiled = jitney.compile(lambda x: ASKS[name](x, weight), backend="eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(2, 3)), ASKS[name](torch.ones(2, 3), weight))
        weight.grad, weight.flag = None, False  # type: ignore[attr-defined]


def with_tangent(x: torch.Tensor) -> torch.Tensor:
    """As libraries tell tensors of forward-mode AD from others."""
    return x * 2 if forward_ad.unpack_dual(x).tangent is None else x * 3


def of_a_level(x: torch.Tensor) -> Any:
    with forward_ad.dual_level():
        result = with_tangent(forward_ad.make_dual(x, x * 2))
        return tuple(forward_ad.unpack_dual(result))


TANGENTS: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "none": (with_tangent, 0),
    "of a level": (of_a_level, 1),
    "of jvp": (lambda x: torch.func.jvp(with_tangent, (x,), (x,)), 1),
    "of grad": (lambda x: grad(lambda v: with_tangent(v).sum())(x), 1),
}


def compared(fn: Callable[[torch.Tensor], Any], x: torch.Tensor, breaks: int) -> Callable[[torch.Tensor], Any]:
    """The compiled function, after two calls that are as in eager, with so many graph breaks."""
    compiled = jitney.compile(fn, backend="eager")
    with observe() as seen:
        for _ in range(2):
            torch.testing.assert_close(compiled(x), fn(x))
    assert len(seen.breaks) == breaks
    return compiled


@pytest.mark.parametrize("name", TANGENTS)
def test_tensors_are_asked_for_their_tangents(name: str) -> None:
    fn, breaks = TANGENTS[name]
    compiled = compared(fn, torch.ones(2), breaks)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2), torch.ones(2))
        if name == "none":
            torch.testing.assert_close(tuple(forward_ad.unpack_dual(compiled(dual))), (3 * torch.ones(2),) * 2)


def with_kernel(x: torch.Tensor) -> torch.Tensor:
    """As libraries take kernels of their own where no transform is at work."""
    return x * 2 if not torch._C._are_functorch_transforms_active() else x * 3


ASKED: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "outside": (with_kernel, 0),
    "in vmap": (vmap(with_kernel), 1),
    "in grad": (lambda x: with_kernel(x) + grad(lambda v: with_kernel(v).sum())(x), 1),
}


@pytest.mark.parametrize("name", ASKED)
def test_functions_ask_whether_a_transform_is_at_work(name: str) -> None:
    fn, breaks = ASKED[name]
    compiled = compared(fn, torch.ones(3, 2), breaks)
    # Within a transform the program itself runs.
    torch.testing.assert_close(vmap(compiled)(torch.ones(3, 2)), vmap(fn)(torch.ones(3, 2)))
