"""Tensor subclasses that wrap tensors, through ``aot_eager``: the same as eager, forward and backward."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import Observed, compile_fn, observe
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint
from wrapper_classes import Pair, Scaled, picture

import jitney
from jitney.backends import Backend
from jitney.errors import JitneyError

Make = Callable[[], tuple[Any, ...]]


def t(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pair(*shape: int, grad: bool = True, seed: int = 0) -> Any:
    return Pair(t(*shape, seed=seed), t(*shape, seed=seed + 50)).requires_grad_(grad)


def same(
    fn: Any,
    make: Make,
    *,
    kept: str | None = None,
    breaks: int = 0,
    calls: int = 2,
    backward: bool = True,
    **options: Any,
) -> Observed:
    """Assert that results, arguments, gradients (their classes too) are eager's, bit by bit."""
    eager, other = copy.deepcopy(fn), copy.deepcopy(fn)
    compiled = compile_fn(other, backend="aot_eager", **options)
    with observe() as seen:
        for _ in range(calls):
            mine, others = make(), make()
            expected, found = eager(*mine), compiled(*others)
            assert picture(expected) == picture(found)
            if backward:
                _step(expected, fn=eager, args=mine)
                _step(found, fn=other, args=others)
            assert picture(_grads(eager, mine)) == picture(_grads(other, others))
            assert picture(mine) == picture(others)
    assert not seen.skips, seen.skips
    assert len(seen.breaks) == breaks, seen.breaks
    if kept is None:
        assert not seen.kept, seen.kept
    else:
        assert any(kept in reason for reason in seen.kept), seen.kept
    assert seen.graphs
    return seen


def _results(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else [v for v in value if isinstance(v, torch.Tensor)]


def _step(result: Any, fn: Any, args: tuple[Any, ...]) -> None:
    total: Any = sum((r * r).sum() for r in _results(result) if r.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()


def _grads(fn: Any, args: tuple[Any, ...]) -> list[Any]:
    leaves = [a for a in args if isinstance(a, torch.Tensor)]
    if isinstance(fn, torch.nn.Module):
        leaves += [*fn.parameters(), *fn.buffers()]
    return [leaf.grad for leaf in leaves if leaf.is_leaf]


# --------------------------------------------------------------------------------------------------- one subclass

PROGRAMS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x, y: (x * y + 1).tanh(),
    "matrix product": lambda x, y: F.linear(x, y).relu(),
    "several results": lambda x, y: (x + y, (x * 2).sum(), y.exp()),
    "one result twice": lambda x, y: [x * y] * 2,
    "softmax": lambda x, y: F.softmax(x, 1) * F.layer_norm(y, (4,)),
    "view of a result": lambda x, y: (x * y).t(),
    "reshaped": lambda x, y: (x * y).reshape(-1)[2:].sum(),
    "in place on intermediate": lambda x, y: (x * 2).add_(y).mul_(y),
    "in place on a view": lambda x, y: _written_row(x * 2, y),
    "detached": lambda x, y: x.detach() * y,
    "metadata": lambda x, y: x.view(x.size(0), -1) * y.dim() + len(x),
    "factory": lambda x, y: x + torch.zeros_like(y) + torch.ones(4),
    "no gradient for one": lambda x, y: (x * 2, y.detach() + 1),
    "split": lambda x, y: torch.cat([x[:1], y[1:]]) * 2,
    "compared": lambda x, y: torch.where(x > y, x, y) * 1.5,
}


def _written_row(z: Any, y: Any) -> Any:
    z[0].mul_(3)
    z[1] = y[1]
    return z


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("grad", [True, False])
def test_program(name: str, grad: bool) -> None:
    same(PROGRAMS[name], lambda: (pair(3, 4, grad=grad), pair(3, 4, grad=grad, seed=1)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_of_torchs_own_class(name: str) -> None:
    def make() -> tuple[Any, ...]:
        return tuple(TwoTensor(t(3, 4, seed=s), t(3, 4, seed=s + 9)).requires_grad_() for s in (0, 1))

    same(PROGRAMS[name], make)


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.saved_tensors[0]


OPERATORS: dict[str, Callable[..., Any]] = {
    "checkpointed": lambda x: checkpoint(lambda v: v.exp().sin() * 2, x, use_reentrant=False),
    "autograd function": lambda x: Tripled.apply(x) + 1,
    "data": lambda x: x.data.sum() + x,
    "complex": lambda x: torch.view_as_real(torch.complex(x, x * 2)),
    "other dtypes": lambda x: (x.to(torch.float64).float() * 2, x.bfloat16() * 2),
    "foreach": lambda x: torch._foreach_mul([x * 1, x * 2], 2.0),
    "index_put": lambda x: torch.index_put(x, (torch.tensor([0, 1]),), torch.tensor(1.0)),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "several results of one operator": lambda x: x.topk(2)[0] + x.cumsum(0).max(dim=1, keepdim=True).values,
    "embedding": lambda x: F.embedding(torch.tensor([0, 2]), x),
    "loss": lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2])),
    "expanded": lambda x: (x * 2)[0].expand(5, 4),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name: str) -> None:
    same(OPERATORS[name], lambda: (pair(3, 4),))


# ------------------------------------------------------------------------------------------- several, nested, mixed


def test_nested() -> None:
    def make() -> tuple[Any, ...]:
        inner = [Pair(t(3, 4, seed=s), t(3, 4, seed=s + 1)) for s in range(4)]
        return Pair(inner[0], Scaled(inner[1], 2.0)).requires_grad_(), Scaled(inner[2], 0.5)  # type: ignore[arg-type]

    def program(x: Any, y: Any) -> Any:
        return (x * 2 + x.exp()).sum(1), y * y

    same(program, make)


def test_mixed_with_plain_tensors() -> None:
    def make() -> tuple[Any, ...]:
        return pair(3, 4), t(4, 4, seed=3).requires_grad_(), t(3, 4, seed=4)

    same(lambda x, w, z: (x @ w + z, z + 1), make)
    same(lambda x, w, z: (w.t() @ (x * z).t()).sum(), make)


def test_plain_results_beside_those_of_a_subclass() -> None:
    def program(x: Any, w: Any) -> Any:
        return x * w[:3], w.exp(), (w @ w).sum()

    compiled = compile_fn(program, backend="aot_eager")
    with observe() as seen:
        for which in range(3):
            sides = []
            for fn in (program, compiled):
                x, w = pair(3, 4), t(4, 4, seed=3).requires_grad_()
                result = fn(x, w)
                result[which].sum().backward()
                sides.append(picture([*result, x.grad, w.grad]))
            assert sides[0] == sides[1]
    assert seen.kept == ["the class of a gradient depends on which results have one"]


def test_plain_results_of_other_inputs() -> None:
    def program(x: Any, w: Any) -> Any:
        return x * 2, w.exp(), (w @ w).sum()

    compiled = compile_fn(program, backend="aot_eager")
    with observe() as seen:
        for which in range(3):
            sides = []
            for fn in (program, compiled):
                x, w = pair(3, 4), t(4, 4, seed=3).requires_grad_()
                result = fn(x, w)
                result[which].sum().backward()
                sides.append(picture([*result, x.grad, w.grad]))
            assert sides[0] == sides[1]
    assert not seen.kept


def test_plain_input_written_beside_a_subclass() -> None:
    def program(x: Any, z: torch.Tensor) -> Any:
        z.mul_(2)
        z.t()[0].add_(1)
        return x * z, z.t()

    same(program, lambda: (pair(3, 4), t(3, 4, seed=4)))


def test_plain_gradient_of_a_plain_leaf_is_as_in_eager() -> None:
    w = t(4, 4, seed=3).requires_grad_()
    compiled = compile_fn(lambda x, w: x @ w, backend="aot_eager")
    compiled(pair(3, 4), w).sum().backward()
    assert type(w.grad) is Pair  # so it is in eager


def test_numbers_and_flags_beside_a_subclass() -> None:
    same(lambda x, n, flag: x * n if flag else x, lambda: (pair(3, 4), 3, True))


def test_inputs_that_are_inner_nodes() -> None:
    def make() -> tuple[Any, ...]:
        x = pair(3, 4)
        return x * 2, x

    same(lambda x, y: (x * y, x + 1), make)


def test_an_inner_tensor_is_an_argument_too() -> None:
    def make() -> tuple[Any, ...]:
        x = pair(3, 4)
        return x, x.a

    same(lambda x, y: x * y, make)


def test_both_inner_tensors_are_one() -> None:
    def make() -> tuple[Any, ...]:
        a = t(3, 4)
        return (Pair(a, a).requires_grad_(),)

    same(lambda x: x * x + 1, make)


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(pair(5, 4, grad=False))
        self.scale = torch.nn.Parameter(t(5))
        self.register_buffer("shift", pair(5, grad=False, seed=7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.weight, torch.nn.Parameter)
        return F.linear(x, self.weight) * self.scale + self.shift


def test_parameters_of_a_subclass() -> None:
    same(Weighted(), lambda: (t(2, 4, seed=1),), calls=3)


def test_training_steps() -> None:
    def losses(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        module: Any = Weighted()
        call = compile_fn(module, backend="aot_eager") if compiled else module
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        found = []
        for step in range(4):
            loss = call(t(2, 4, seed=step)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(picture(loss.detach()))
        return [*found, picture(list(module.parameters()))]

    assert losses(True) == losses(False)


# --------------------------------------------------------------------------------------------- guards and recompiles


def test_another_context_compiles_again() -> None:
    compiled = compile_fn(lambda x: x * x, backend="aot_eager")
    with observe() as seen:
        for factor in (2.0, 2.0, 3.0, 2.0, 2):
            x, y = (Scaled(t(3), factor).requires_grad_() for _ in range(2))
            found, expected = compiled(x), y * y
            assert picture(found) == picture(expected)
            found.sum().backward()
            expected.sum().backward()
            assert picture(x.grad) == picture(y.grad)
    assert len(seen.graphs) == 3  # 2.0, 3.0, and the int 2
    assert "context" in seen.recompiles[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda: Pair(t(3, 4).double(), t(3, 4).double()),
        lambda: Pair(t(3, 4), t(3, 4).double()),
        lambda: Pair(t(3, 5), t(3, 5)),
        lambda: Pair(t(4, 3).t(), t(4, 3).t()),
        lambda: Pair(t(3, 4), t(4, 3).t()),
        lambda: TwoTensor(t(3, 4), t(3, 4)),
        lambda: Scaled(t(3, 4), 2.0),
        lambda: Pair(Pair(t(3, 4), t(3, 4)), t(3, 4)),
        lambda: t(3, 4),
        lambda: Pair(t(3, 4), t(3, 4)).requires_grad_(),
        lambda: Pair(t(3, 4).requires_grad_(), t(3, 4)),
    ],
)
def test_another_inner_tensor_compiles_again(change: Callable[[], Any]) -> None:
    def program(x: Any) -> Any:
        return (x * 2).t() + x.sum()

    compiled = compile_fn(program, backend="aot_eager", dynamic=False)
    with observe() as seen:
        for make in (lambda: Pair(t(3, 4), t(3, 4)), change):
            assert picture(compiled(make())) == picture(program(make()))
    assert len(seen.graphs) == 2
    assert not seen.skips


def test_dynamic_sizes() -> None:
    def program(x: Any, y: Any) -> Any:
        return (x * 2 + y).relu(), x.sum(0) * x.size(0), (x.t() @ y).reshape(-1)

    compiled = compile_fn(program, backend="aot_eager")
    with observe() as seen:
        for size in (3, 4, 5, 6, 7):
            sides = []
            for fn in (program, compiled):
                x, y = pair(size, 4), pair(size, 4, seed=3)
                result = fn(x, y)
                sum((r * r).sum() for r in result).backward()  # type: ignore[union-attr]
                sides.append(picture([*result, x.grad, y.grad]))
            assert sides[0] == sides[1]
    assert len(seen.graphs) == 2
    assert not seen.kept
    assert not seen.skips


def test_dynamic_sizes_of_inner_tensors_that_differ_from_the_outer_one() -> None:
    compiled = compile_fn(lambda x: x.exp() * x.size(0), backend="aot_eager", dynamic=True)
    with observe() as seen:
        for size in (3, 5):
            x, y = (Halved(t(size, 4)).requires_grad_() for _ in range(2))
            found, expected = compiled(x), y.exp() * y.size(0)
            assert picture(found) == picture(expected)
            found.backward(Halved(t(size, 4, seed=1)))
            expected.backward(Halved(t(size, 4, seed=1)))
            assert picture(x.grad) == picture(y.grad)
    assert len(seen.graphs) == 1
    assert not seen.kept


class Halved(Pair):
    """Claims to have twice the rows that its inner tensor has."""

    @staticmethod
    def __new__(cls, a: torch.Tensor) -> Any:
        size = (a.size(0) * 2, *a.size()[1:])
        return torch.Tensor._make_wrapper_subclass(cls, size, dtype=a.dtype)

    def __init__(self, a: torch.Tensor) -> None:
        self.a = a

    def __tensor_flatten__(self) -> Any:
        return ["a"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Halved(inner["a"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tree = torch.utils._pytree.tree_map_only
        made = func(*tree(Halved, lambda x: x.a, args), **tree(Halved, lambda x: x.a, kwargs or {}))
        return tree(torch.Tensor, Halved, made)


# --------------------------------------------------------------------------------------------------- grad mode, writes


def test_no_grad() -> None:
    @torch.no_grad()
    def program(x: Any, y: Any) -> Any:
        return x * y, x.t() @ y

    same(program, lambda: (pair(3, 4), pair(3, 4, seed=1)))
    with torch.no_grad():
        same(PROGRAMS["softmax"], lambda: (pair(3, 4), pair(3, 4, seed=1)), backward=False)


def test_a_part_without_grad() -> None:
    def program(x: Any) -> Any:
        with torch.no_grad():
            scale = x.sum()
        return x * scale, scale

    same(program, lambda: (pair(3, 4),))


def test_inference_mode() -> None:
    def program(x: Any) -> Any:
        with torch.inference_mode():
            return x * 2

    same(program, lambda: (pair(3, 4, grad=False),), kept="inference", backward=False)


@pytest.mark.parametrize("grad", [True, False])
def test_input_written(grad: bool) -> None:
    def program(x: Any, y: Any) -> Any:
        x.mul_(2)
        return x + y

    def make() -> tuple[Any, ...]:
        return pair(3, 4, grad=grad) * 1, pair(3, 4, seed=2)

    same(program, make, kept="is written to")


def test_inner_tensor_of_an_input_written() -> None:
    def program(x: Any, y: torch.Tensor) -> Any:
        y.mul_(2)
        return x + 1

    def make() -> tuple[Any, ...]:
        x = pair(3, 4, grad=False)
        return x, x.b

    compiled = compile_fn(program, backend="aot_eager")
    for _ in range(2):
        mine, others = make(), make()
        assert picture(program(*mine)) == picture(compiled(*others))
        assert picture(mine) == picture(others)


@pytest.mark.parametrize("program", [lambda x: x.t(), lambda x: (x * 2, x[0]), lambda x: _two_views(x * 2)])
def test_results_that_share_memory(program: Callable[..., Any]) -> None:
    same(program, lambda: (pair(3, 4),), kept="shares memory")


def _two_views(z: Any) -> Any:
    return z, z.t()


def test_input_returned_as_it_is() -> None:
    def program(x: Any, y: Any) -> Any:
        return x, x * y, y

    compiled = compile_fn(program, backend="aot_eager")
    x, y = pair(3), pair(3, seed=1)
    with observe() as seen:
        found = compiled(x, y)
    assert found[0] is x
    assert found[2] is y
    assert not seen.kept


def test_version_error_after_a_write_to_what_was_saved() -> None:
    def run(fn: Any) -> str:
        x, y = pair(3), pair(3, seed=1)
        z = y * 1
        out = fn(x, z)
        with torch.no_grad():
            z.add_(1)
        with pytest.raises(RuntimeError) as raised:
            out.sum().backward()
        return str(raised.value)

    def program(x: Any, y: Any) -> Any:
        return x * y

    for fn in (program, compile_fn(program, backend="aot_eager")):
        assert "modified by an inplace operation" in run(fn)


def test_version_error_after_a_write_to_a_result() -> None:
    def program(x: Any, y: Any) -> Any:
        z = x @ y
        return z, z @ z

    for fn in (program, compile_fn(program, backend="aot_eager")):
        first, out = fn(pair(3, 3), pair(3, 3))
        with torch.no_grad():
            first.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_gradients_have_memory_of_their_own() -> None:
    def run(fn: Any) -> Any:
        x, y, z = pair(3), pair(3, seed=1), t(3, seed=2).requires_grad_()
        for _ in range(2):  # the second backward adds to what the first one left
            a, b = fn(x, y, z)
            (a + b).sum().backward()
            b = fn(x, y, z)[1]
            b.sum().backward()
        return picture([x.grad, y.grad, z.grad])

    def program(x: Any, y: Any, z: Any) -> Any:
        return x + y + z, y * 2 + x

    assert run(program) == run(compile_fn(program, backend="aot_eager"))


# -------------------------------------------------------------------------------------------------------- tangents


def test_some_results_without_a_gradient() -> None:
    def run(fn: Any, used: int) -> Any:
        x, y = pair(3), pair(3, seed=1)
        fn(x, y)[used].sum().backward()
        return picture([x.grad, y.grad])

    def program(x: Any, y: Any) -> Any:
        return x + y, x * y, x.exp()

    compiled = compile_fn(program, backend="aot_eager")
    for used in (0, 1, 2, 0):
        assert run(program, used) == run(compiled, used)


def test_gradient_of_one_input() -> None:
    compiled = compile_fn(lambda x, y: x * y, backend="aot_eager")
    x, y = pair(3), pair(3, seed=1)
    (found,) = torch.autograd.grad(compiled(x, y), [y], Pair(t(3), t(3)))
    (expected,) = torch.autograd.grad(x * y, [y], Pair(t(3), t(3)))
    assert picture(found) == picture(expected)


def test_plain_tangent_is_refused() -> None:
    compiled = compile_fn(lambda x: x * 2, backend="aot_eager")
    with pytest.raises(JitneyError, match=r"a gradient that is a Pair .* and it comes as a Tensor"):
        compiled(pair(3)).backward(torch.ones(3))


def test_tangent_in_another_context_is_refused() -> None:
    compiled = compile_fn(lambda x: x * 2, backend="aot_eager")
    with pytest.raises(JitneyError, match="in another context"):
        compiled(Scaled(t(3), 2.0).requires_grad_()).backward(Scaled(t(3), 3.0))


def test_tangent_that_holds_another_class_is_refused() -> None:
    compiled = compile_fn(lambda x: x * 2, backend="aot_eager")
    with pytest.raises(JitneyError, match="it holds a Pair"):
        compiled(pair(3)).backward(Pair(pair(3, grad=False), t(3)))


def test_tangent_of_a_subclass_for_a_plain_result_is_refused() -> None:
    compiled = compile_fn(lambda x, w: (x * 2, w * 2), backend="aot_eager")
    w = t(3).requires_grad_()
    result = compiled(pair(3), w)[1]
    with pytest.raises(JitneyError, match="comes as a Pair"):
        (result * pair(3, grad=False)).sum().backward()


def test_tangent_of_a_subclass_for_a_plain_graph() -> None:
    def run(fn: Any) -> Any:
        w = t(3).requires_grad_()
        (fn(w) * pair(3, grad=False)).sum().backward()
        return picture(w.grad)

    def program(w: torch.Tensor) -> torch.Tensor:
        return w.exp() * 2

    def reads_memory(graph: Any, inputs: Any) -> Any:
        def call(*args: Any) -> Any:
            assert all(type(a) is not Pair for a in args)  # a kernel would read memory that is not there
            return graph(*args)

        return call

    reader = Backend("reader", lambda graph, inputs, request: reads_memory(graph, inputs), level="aten")
    for backend in ("aot_eager", reader):
        assert run(program) == run(compile_fn(program, backend=backend))


def test_other_strides_of_a_tangent() -> None:
    def run(fn: Any) -> Any:
        x = pair(3, 4)
        fn(x).backward(Pair(t(4, 3).t(), t(4, 3, seed=1).t()))
        return picture(x.grad)

    def program(x: Any) -> Any:
        return (x.exp() * 2).sigmoid()

    assert run(program) == run(compile_fn(program, backend="aot_eager"))


def test_double_backward_is_refused() -> None:
    compiled = compile_fn(lambda x: x.exp(), backend="aot_eager")
    x = pair(3)
    (first,) = torch.autograd.grad(compiled(x).sum(), [x], create_graph=True)
    assert picture(first.detach()) == picture(torch.autograd.grad(x.exp().sum(), [x])[0])
    with pytest.raises(JitneyError, match="double backward"):
        first.sum().backward()


def test_hooks_and_retained_graph() -> None:
    def run(fn: Any) -> Any:
        x, seen = pair(3), []
        x.register_hook(lambda g: seen.append(picture(g)))
        out = fn(x).sum()
        out.backward(retain_graph=True)
        out.backward()
        return picture(x.grad), seen

    def program(x: Any) -> Any:
        return x * x

    assert run(program) == run(compile_fn(program, backend="aot_eager"))


def _by_result(y: Any, z: Any) -> Any:
    return [picture(g) for g in torch.autograd.grad(z.sum(), [y], retain_graph=True)]


def _hooked(y: Any, z: Any) -> Any:
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(picture(g)))
    (y.sum() + z.sum()).backward()
    return seen


def _retained(y: Any, z: Any) -> Any:
    y.retain_grad()
    z.sum().backward()
    return picture(y.grad)


@pytest.mark.parametrize("look", [_by_result, _hooked, _retained])
@pytest.mark.parametrize("plain", [False, True])
def test_what_arrives_at_a_result_of_which_another_is_computed(look: Callable[..., Any], plain: bool) -> None:
    def program(x: Any, w: Any) -> Any:
        y = w * 2 if plain else x * 2
        return y, (x * y).exp()

    def run(fn: Any) -> Any:
        x, w = pair(3), t(3, seed=3).requires_grad_()
        return look(*fn(x, w)), picture(x.grad), picture(w.grad)

    with observe() as seen:
        assert run(program) == run(compile_fn(program, backend="aot_eager"))
    assert "a result is computed from another one" in seen.kept[0]


def test_saved_tensors_hooks_see_outer_tensors() -> None:
    seen = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        seen.append(type(value))
        return value

    compiled = compile_fn(lambda x, y: x * y, backend="aot_eager")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        compiled(pair(3), pair(3)).sum().backward()
    assert Pair in seen


# ------------------------------------------------------------------------------------------------ others, and the graph


def test_the_graph_has_plain_operators_only() -> None:
    graphs = []
    listener = lambda event: graphs.append(event) if type(event).__name__ == "AtenGraph" else None  # noqa: E731
    with jitney.events.listen(listener):
        out = compile_fn(lambda x: (x * 2).add_(1), backend="aot_eager")(pair(3))
        out.sum().backward()
    assert {event.kind for event in graphs} >= {"joint", "forward", "backward"}
    for event in graphs:
        for node in event.graph.nodes:
            value = node.meta.get("val")
            assert not isinstance(value, torch.Tensor) or type(value).__name__ == "FakeTensor"


def test_random_operators_draw_as_in_eager() -> None:
    def run(fn: Any) -> Any:
        torch.manual_seed(3)
        x = pair(8)
        out = fn(x)
        out.sum().backward()
        return picture([out, x.grad]), torch.rand(1).item()

    def program(x: Any) -> Any:
        return F.dropout(x, 0.5) * torch.rand(8)

    assert run(program) == run(compile_fn(program, backend="aot_eager"))


def test_autocast() -> None:
    def program(x: Any, w: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ w

    same(program, lambda: (pair(3, 4), pair(4, 4, seed=1)))


def test_core_decompositions() -> None:
    same(
        lambda x, y: (F.relu(x) * y).t() @ F.hardtanh(y),
        lambda: (pair(3, 4), pair(3, 4, seed=1)),
        options={"decompose": "core"},
    )
