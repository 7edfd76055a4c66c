"""Tensor subclasses that wrap tensors, captured: what is understood, what is guarded, what breaks and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import Observed, compile_fn, observe, t
from wrapper_classes import Pair, Scaled, picture


def pair(*shape: int, grad: bool = False) -> Any:
    return Pair(t(*(shape or (3,))), t(*(shape or (3,))) * 2).requires_grad_(grad)


def same(fn: Any, make: Callable[[], tuple[Any, ...]], breaks: int = 0, skips: int = 0) -> Observed:
    """Assert that ``fn`` compiled gives what it gives in eager, and leaves its arguments so."""
    compiled = compile_fn(fn)
    with observe() as seen:
        for _ in range(2):
            mine, others = make(), make()
            assert picture(fn(*mine)) == picture(compiled(*others))
            assert picture(mine) == picture(others)
    assert len(seen.breaks) == breaks, seen.breaks
    assert len(seen.skips) == skips, seen.skips
    return seen


PROGRAMS: dict[str, Callable[..., Any]] = {
    "operators": lambda x: 2 * x + x / 3 - (-x) ** 2,
    "methods": lambda x: x.exp().sum().unsqueeze(0),
    "functions": lambda x: torch.cat([torch.relu(x), x]).softmax(0),
    "comparison": lambda x: (x > 0, x == x, x != 1),
    "items": lambda x: (x[0], x[1:], x[:, 0], x[..., None]),
    "written": lambda x: _written(x),
    "written by item": lambda x: _item_written(x),
    "written clone": lambda x: _written(x.clone()),
    "metadata": lambda x: (x.shape, x.dim(), x.dtype, x.device, x.numel(), len(x), x.is_contiguous(), x.requires_grad),
    "class": lambda x: (type(x) is Pair, type(x * 2), isinstance(x, Pair), isinstance(x, torch.Tensor), x.__class__),
    "not a parameter": lambda x: (isinstance(x, torch.nn.Parameter), torch.is_tensor(x), hasattr(x, "c")),
    "identity": lambda x: (x is x, [x].index(x), x in {x: 1}),
    "containers": lambda x: {"a": [x, x + 1], "b": (x,)},
    "unpacked": lambda x: _unpacked(x),
    "iterated": lambda x: [row * 2 for row in x],
    "like": lambda x: torch.zeros_like(x) + torch.ones(4) + x.new_zeros(4),
    "no_grad": lambda x: _no_grad(x),
    "transposed": lambda x: (x.T, x.mT, x.data * 2),
    "joined": lambda x: torch.stack(list(x.unbind())),
}


def _written(x: Any) -> Any:
    x.mul_(2)
    x += 1
    return x * 2


def _item_written(x: Any) -> Any:
    x[0] = 5.0
    x[1] = x[2]
    return x + 1


def _unpacked(x: Any) -> Any:
    first, *rest = x
    return first + sum(rest)


@torch.no_grad()
def _no_grad(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    same(PROGRAMS[name], lambda: (pair(3, 4),))


def test_gradients() -> None:
    def run(fn: Any) -> Any:
        x = pair(3, 4, grad=True)
        out = fn(x)
        out.sum().backward()
        return picture([out, x.grad])

    def program(x: Any) -> Any:
        return (x @ x.t()).relu()

    assert run(program) == run(compile_fn(program))


def test_global_closure_and_attribute() -> None:
    held = pair()

    class Holder:
        pass

    holder: Any = Holder()
    holder.x = pair()
    same(lambda y: held + holder.x * y + SHARED, lambda: (pair(),))


SHARED = pair()


def test_module_with_parameter_and_buffer() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(pair(3, grad=False))
            self.register_buffer("shift", pair())

        def forward(self, x: torch.Tensor) -> Any:
            flags = isinstance(self.weight, torch.nn.Parameter), self.weight.requires_grad, self.weight.is_leaf
            return x * self.weight + self.shift, flags

    same(Layer(), lambda: (t(3),))


def test_argument_given_twice() -> None:
    x = pair()
    compiled = compile_fn(lambda x, y: (x * y, x is y))
    for args in ((x, x), (x, pair()), (pair(), pair())):
        found, alike = compiled(*args)
        assert picture(found) == picture(args[0] * args[1])
        assert alike is (args[0] is args[1])


def test_graph_break_in_between() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        print(end="")
        return y + x

    same(program, lambda: (pair(),), breaks=1)


# ------------------------------------------------------------------------------------------------- guards


def test_every_part_is_guarded() -> None:
    compiled = compile_fn(lambda x: x * x, dynamic=False)
    calls = [
        lambda: Scaled(t(3), 2.0),
        lambda: Scaled(t(3), 3.0),
        lambda: Scaled(t(3), True),
        lambda: Scaled(t(3), 1),
        lambda: Scaled(t(4), 2.0),
        lambda: Scaled(t(3).double(), 2.0),
        lambda: Scaled(Scaled(t(3), 3.0), 2.0),
        lambda: Scaled(Scaled(t(3), 4.0), 2.0),
    ]
    with observe() as seen:
        for _ in range(2):
            for make in calls:
                x = make()
                assert picture(compiled(make())) == picture(x * x)
    assert len(seen.graphs) == len(calls)


def test_context_that_changes_later() -> None:
    """The context is a dictionary that the tensor's owner writes to between calls."""
    compiled = compile_fn(lambda x: x * x)
    factors = {"factor": 2.0}

    class Listed(Scaled):
        def __tensor_flatten__(self) -> Any:
            return ["inner"], factors

        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Listed(inner["inner"], context["factor"])

    with observe() as seen:
        for value in (2.0, 3.0, 2.0):
            factors["factor"] = value
            x = Listed(t(3), value)
            assert picture(compiled(Listed(t(3), value))) == picture(x * x)
    assert len(seen.graphs) == 2


def test_another_torch_dispatch_compiles_again() -> None:
    class Doubled(Scaled):
        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Doubled(inner["inner"], context["factor"])

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return Doubled(func(*(a.inner if isinstance(a, Doubled) else a for a in args)) * 2, 1)

    def third(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return Doubled(func(*(a.inner if isinstance(a, Doubled) else a for a in args)) * 3, 1)

    compiled = compile_fn(lambda x: x + 1, backend="aot_eager")
    assert compiled(Doubled(t(3), 1)).inner.tolist() == ((t(3) + 1) * 2).tolist()
    Doubled.__torch_dispatch__ = classmethod(third)  # type: ignore[method-assign, assignment]
    assert compiled(Doubled(t(3), 1)).inner.tolist() == ((t(3) + 1) * 3).tolist()


def test_attribute_that_is_no_part_of_the_context_is_guarded() -> None:
    """``__torch_dispatch__`` may read any attribute; plain ones are guarded, others refused."""

    class Tagged(Pair):
        tag: Any = 1

        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Tagged(inner["a"], inner["b"])

    compiled = compile_fn(lambda x: x * 2)
    with observe() as seen:
        for tag in (1, 2, 1):
            x: Any = Tagged(t(3), t(3))
            x.tag = tag
            compiled(x)
    assert len(seen.graphs) == 2
    x.tag = object()
    with observe() as seen:
        compiled(x)
    assert "Tagged.tag is not in the context" in seen.skips[0]


def test_dynamic_sizes() -> None:
    compiled = compile_fn(lambda x: (x * x.size(0)).sum(0))
    with observe() as seen:
        for size in (2, 3, 4, 5, 6):
            x = pair(size, 4)
            assert picture(compiled(pair(size, 4))) == picture((x * size).sum(0))
    assert len(seen.graphs) == 2
    assert not seen.skips


# ----------------------------------------------------------------------------------------- what breaks, and why


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: (x * 2).a + 1, "Pair.a is the subclass's own"),
        (lambda x: x.b + 1, "Pair.b is the subclass's own"),
        (lambda x: len((x * 2).__tensor_flatten__()[0]) + x, "__tensor_flatten__ is the subclass's own"),
        (lambda x: Pair(x.sum(), x.sum()), "tensors of a subclass belong to autograd"),
    ],
)
def test_what_is_the_subclass_s_own(program: Callable[..., Any], reason: str) -> None:
    compiled = compile_fn(program)
    with observe() as seen:
        assert picture(compiled(pair())) == picture(program(pair()))
    assert any(reason in text for text in seen.breaks), seen.breaks


def test_missing_attribute() -> None:
    def program(x: Any) -> Any:
        try:
            return x.nothing
        except AttributeError as error:
            return str(error), x * 2

    same(program, lambda: (pair(),))


class _Function(Pair):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


class _Add(Pair):
    def __add__(self, other: Any) -> Any:
        return super().__add__(other) * 2


class _Getattr(Pair):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class _Unequal(Pair):
    def __tensor_flatten__(self) -> Any:
        return ["a", "b"], object()


class _Counts(Pair):
    calls: list[Any] = []  # noqa: RUF012 (shared on purpose)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func)
        return super().__torch_dispatch__(func, types, args, kwargs)


class _Other(Pair):
    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Pair(inner["a"], inner["b"])


class _Fails(Pair):
    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        raise KeyError("no")


class _NoFlatten(torch.Tensor):
    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, a.size(), dtype=a.dtype)

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(x.a if isinstance(x, _NoFlatten) else x for x in args), **(kwargs or {}))


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (_Function, "its own __torch_function__"),
        (_Add, "its own __add__"),
        (_Getattr, "its own __getattr__"),
        (_Unequal, "the context of a _Unequal, a object, cannot be compared"),
        (_Counts, "whose __torch_dispatch__ writes"),
        (_Other, "makes another tensor"),
        (_Fails, "raised KeyError"),
        (_NoFlatten, "a tensor of class _NoFlatten is not captured"),
    ],
)
def test_classes_that_are_not_understood(cls: Any, reason: str) -> None:
    def program(x: Any) -> Any:
        return x + 1

    compiled = compile_fn(program, backend="aot_eager")
    with observe() as seen:
        assert picture(compiled(cls(t(3), t(3)))) == picture(program(cls(t(3), t(3))))
    assert any(reason in text for text in seen.skips), seen.skips
    assert not seen.graphs


def test_result_of_a_class_that_is_not_understood() -> None:
    class Turns(Pair):
        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Turns(inner["a"], inner["b"])

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return _NoFlatten(args[0].a + 1, args[0].b)

    compiled = compile_fn(lambda x: x.exp())
    with observe() as seen:
        found = compiled(Turns(t(3), t(3)))
    assert type(found) is _NoFlatten
    assert seen.breaks or seen.skips


def test_dispatch_that_looks_at_values() -> None:
    class Branches(Pair):
        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Branches(inner["a"], inner["b"])

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            sign = 1 if args[0].a.sum() > 0 else -1
            return Branches(func(args[0].a) * sign, func(args[0].b))

    def make(sign: int) -> Any:
        return Branches(torch.ones(3) * sign, torch.ones(3))

    compiled = compile_fn(lambda x: x.exp(), backend="aot_eager")
    with observe() as seen:
        for sign in (1, -1, 1):
            assert picture(compiled(make(sign))) == picture(make(sign).exp())
    assert seen.breaks


def test_values_of_a_subclass_break() -> None:
    def program(x: Any) -> Any:
        if x.sum() > 0:
            return x * 2
        return x

    def item(x: Any) -> Any:
        return x * x.sum().item()

    for fn in (program, item):
        compiled = compile_fn(fn)
        with observe() as seen:
            assert picture(compiled(pair())) == picture(fn(pair()))
        assert seen.breaks


def test_plain_subclasses_with_special_methods_run_eagerly() -> None:
    class Plain(torch.Tensor):
        def __add__(self, other: Any) -> Any:
            return torch.add(self, other).mul(2)

    compiled = compile_fn(lambda x: x + 1)
    with observe() as seen:
        made = compiled(t(3).as_subclass(Plain))
    assert type(made) is Plain and made.tolist() == ((t(3) + 1) * 2).tolist()
    assert "which has its own __add__" in seen.skips[0]
