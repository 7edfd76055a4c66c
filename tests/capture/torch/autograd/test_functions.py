"""``autograd.Function`` in captured code: what its forward and backward read is guarded, or the graph breaks there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import observe
from torch.nn import functional as F  # noqa: N812 (torch's own name for it)

import jitney

SCALE: Any = 2.0
TABLE = {"scale": 2.0}
CALLS: list[str] = []


class Settings:
    scale = 2.0


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


def tripled(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def helped(x: torch.Tensor) -> torch.Tensor:
    return tripled(x)


@pytest.fixture(params=["eager", "aot_eager"])
def backend(request: pytest.FixtureRequest) -> Any:
    """A backend that runs the captured graph, and one that traces through it."""
    return request.param


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the functions below read is as it was after each test."""
    for name in ("SCALE", "tripled", "helped"):
        monkeypatch.setitem(globals(), name, globals()[name])
    monkeypatch.setattr(Settings, "scale", 2.0)
    monkeypatch.setitem(TABLE, "scale", 2.0)
    monkeypatch.setattr(torch, "exp", torch.exp)
    monkeypatch.setattr(F, "softplus", F.softplus)
    CALLS.clear()


class GlobalRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * SCALE

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 5


class GlobalReadLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 5

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * SCALE


class HelperRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return scaled(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return helped(grad)


class TableRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * TABLE["scale"]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * Settings.scale


class OwnRead(torch.autograd.Function):
    scale = 2.0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * OwnRead.scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * OwnRead.scale


class StaticRead(torch.autograd.Function):
    """Calls static methods of its own class, and one of another."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return StaticRead.weighted(x) + Weights.twice(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 5

    @staticmethod
    def weighted(x: torch.Tensor) -> torch.Tensor:
        return x * 3


class Weights:
    @staticmethod
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2


class DefaultRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return grad * scale


class TorchRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return torch.exp(x) + F.softplus(x) * math.pi

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * torch.exp(x) + F.softplus(x)


class FlagRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * (2 if torch.backends.cuda.matmul.allow_tf32 else 3)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * (2 if torch.get_float32_matmul_precision() == "highest" else 3)


class EffectLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        CALLS.append("backward")
        return grad * 2


def enclosed(scale: float) -> Any:
    """A class whose methods read variables of this function, and what sets these."""

    class Enclosed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 3

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * scale

    def put(value: float) -> None:
        nonlocal scale
        scale = value

    return Enclosed, put


def set_global(name: str, *values: Any) -> list[Callable[[], None]]:
    return [lambda value=value: globals().__setitem__(name, value) for value in values]  # type: ignore[misc]


def set_attribute(owner: Any, name: str, *values: Any) -> list[Callable[[], None]]:
    return [lambda value=value: setattr(owner, name, value) for value in values]  # type: ignore[misc]


ENCLOSED, PUT = enclosed(2.0)
EXP, SOFTPLUS = torch.exp, F.softplus
CASES: dict[str, tuple[Any, list[Callable[[], None]]]] = {
    "a global": (GlobalRead, set_global("SCALE", 3.0, 4.0)),
    "a global, in the backward": (GlobalReadLater, set_global("SCALE", 3.0, 4.0)),
    "a global that becomes a tensor": (GlobalRead, set_global("SCALE", torch.tensor(3.0), torch.tensor(4.0))),
    "a helper's global": (HelperRead, set_global("SCALE", 3.0, 4.0)),
    "a helper's helper": (HelperRead, set_global("tripled", lambda x: x * 7, lambda x: x * 8)),
    "a dictionary": (TableRead, [lambda: TABLE.update(scale=3.0), lambda: TABLE.update(scale=4.0)]),
    "a class": (TableRead, set_attribute(Settings, "scale", 3.0, 4.0)),
    "its own class": (OwnRead, set_attribute(OwnRead, "scale", 3.0, 4.0, 2.0)),
    "a static method of its own": (
        StaticRead,
        set_attribute(StaticRead, "weighted", staticmethod(lambda x: x * 9), StaticRead.__dict__["weighted"]),
    ),
    "a static method": (
        StaticRead,
        set_attribute(Weights, "twice", staticmethod(lambda x: x * 9), Weights.__dict__["twice"]),
    ),
    "a default": (DefaultRead, set_attribute(DefaultRead.forward, "__defaults__", (3.0,), (4.0,), (2.0,))),
    "a default of the backward": (DefaultRead, set_attribute(DefaultRead.backward, "__defaults__", (3.0,), (2.0,))),
    "a variable around it": (ENCLOSED, [lambda: PUT(3.0), lambda: PUT(4.0)]),
    "a function of torch": (TorchRead, set_attribute(torch, "exp", lambda x: EXP(x) - 1, lambda x: EXP(x) - 2)),
    "a Python function of torch": (TorchRead, set_attribute(F, "softplus", lambda x: x - 1, lambda x: x - 2)),
    "a flag of torch": (FlagRead, set_attribute(torch.backends.cuda.matmul, "allow_tf32", True, False)),
    "an effect": (EffectLater, [lambda: None]),
    "another forward": (
        GlobalRead,
        set_attribute(GlobalRead, "forward", staticmethod(lambda ctx, x: x * 9), GlobalRead.__dict__["forward"]),
    ),
    "another backward": (
        GlobalRead,
        set_attribute(GlobalRead, "backward", staticmethod(lambda ctx, g: g * 9), GlobalRead.__dict__["backward"]),
    ),
}


def run(function: Any) -> tuple[list[float], list[float], int]:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    before = len(CALLS)
    y = function(x)
    y.sum().backward()
    assert x.grad is not None
    return y.tolist(), x.grad.tolist(), len(CALLS) - before


@pytest.mark.parametrize("case", CASES)
def test_what_a_function_reads_is_read_at_each_call(case: str, backend: Any) -> None:
    cls, changes = CASES[case]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return cls.apply(x + 1) * 2

    compiled = jitney.compile(fn, backend=backend)
    for change in (lambda: None, *changes):
        change()
        for _ in range(2):
            assert run(compiled) == run(fn)


def test_a_global_that_changes_between_forward_and_backward(backend: Any) -> None:
    global SCALE

    def fn(x: torch.Tensor) -> torch.Tensor:
        return GlobalReadLater.apply(x) * 2

    grads = []
    for function in (fn, jitney.compile(fn, backend=backend)):
        for value in (3.0, 4.0):
            SCALE = 2.0
            x = torch.ones(2, requires_grad=True)
            y = function(x)
            SCALE = value
            y.sum().backward()
            assert x.grad is not None
            grads.append(x.grad.tolist())
    assert grads[:2] == grads[2:]


class Plain(torch.autograd.Function):
    """Reads its arguments, torch and constants only."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, power: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.power = power
        return torch.pow(x, power) if x.dim() else helped(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * ctx.power * sum([x ** (ctx.power - 1)], torch.zeros_like(x)) * math.sqrt(1.0), None


class Decorated(torch.autograd.Function):
    """With decorators of torch's."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.saved_tensors[0].exp()


class TensorDefault(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor = torch.tensor(2.0), power: int = 2) -> torch.Tensor:  # noqa: B008
        return x * scale**power

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return grad * 5, None, None


ONE_GRAPH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda x: Plain.apply(x, 3) + 1,
    "global": lambda x: GlobalRead.apply(x) + 1,
    "static methods": lambda x: StaticRead.apply(x) + 1,
    "a default that is not used": lambda x: TensorDefault.apply(x, x.detach()) + 1,
}


def test_a_default_that_is_no_plain_value_is_a_break_where_it_is_used() -> None:
    compiled = jitney.compile(lambda x: TensorDefault.apply(x) + 1, backend="eager")
    with observe() as seen:
        assert run(compiled) == run(lambda x: TensorDefault.apply(x) + 1)
    assert len(seen.breaks) == 1 and "has a default in forward that is no plain value" in seen.breaks[0]


@pytest.mark.parametrize("fn", ONE_GRAPH.values(), ids=ONE_GRAPH)
def test_what_reads_nothing_else_stays_one_graph(fn: Any, backend: Any) -> None:
    assert run(jitney.compile(fn, backend=backend, fullgraph=True)) == run(fn)


def test_decorators_of_torch(backend: Any) -> None:
    fn = lambda x: Decorated.apply(x) + 1  # noqa: E731
    assert run(jitney.compile(fn, backend=backend)) == run(fn)


def test_the_reason_says_what_is_read() -> None:
    with pytest.raises(jitney.errors.Unsupported, match="GlobalReadLater reads the global SCALE in its backward"):
        jitney.compile(lambda x: GlobalReadLater.apply(x), fullgraph=True, backend="eager")(torch.ones(2))


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, owner: Any) -> torch.Tensor:
        owner.seen += 1
        return x * owner.scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad * 5, None


class Called(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, fn: Any) -> torch.Tensor:
        result: torch.Tensor = fn(x)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad * 5, None


class Layer(torch.nn.Module):
    seen = 0
    scale = 4.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = Counting.apply(x, self)
        return result


def noted(x: torch.Tensor) -> torch.Tensor:
    CALLS.append("noted")
    return x * 2


def test_a_module_that_the_forward_writes_to_is_written_to_once(backend: Any) -> None:
    layer = Layer()
    compiled = jitney.compile(layer, backend=backend)
    for count in (1, 2, 3):
        x = torch.ones(2, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert layer.seen == count and y.tolist() == [4.0, 4.0]
        assert x.grad is not None and x.grad.tolist() == [5.0, 5.0]


def test_a_class_or_a_function_given_to_the_forward_is_looked_into(backend: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(Settings, "seen", 0, raising=False)
    compiled = jitney.compile(lambda x: (Counting.apply(x, Settings), Called.apply(x, noted)), backend=backend)
    for count in (1, 2):
        assert [y.tolist() for y in compiled(torch.ones(2))] == [[2.0, 2.0], [2.0, 2.0]]
        assert Settings.seen == count and len(CALLS) == count  # type: ignore[attr-defined]


def test_a_function_given_to_the_forward_is_part_of_the_graph(backend: Any) -> None:
    compiled = jitney.compile(lambda x: Called.apply(x, tripled) + 1, backend=backend, fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]


class StraightThrough(torch.autograd.Function):
    """As binary networks have it: gradients of what is out of range are set to zero in a copy."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        signs = torch.zeros_like(x)
        signs[x > 0] = 1
        ctx.save_for_backward(x)
        return signs

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        grad = g.clone()
        grad[x.ge(0.5)] = 0
        grad[x.le(-0.5)] = 0
        return grad


class ThroughView(StraightThrough):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        row = g[0]
        row[1] = 7
        return g


class ThroughAlias(ThroughView):
    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        copy = g.clone()
        copy = g
        copy[g > 5] += 1
        return copy


@pytest.mark.parametrize(("cls", "breaks"), [(StraightThrough, 0), (ThroughView, 1), (ThroughAlias, 1)])
def test_items_of_copies_may_be_written(cls: Any, breaks: int, backend: Any) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return cls.apply(x * 1).sin()

    assert jitney.explain(fn, backend=backend)(torch.ones(2, 3).requires_grad_()).graph_break_count == breaks
    given = [torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_() for _ in "12"]
    for called, x in zip((fn, jitney.compile(fn, backend=backend)), given, strict=True):
        called(x).sum().backward()
    torch.testing.assert_close(given[0].grad, given[1].grad)


class OfModule(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, module: Any) -> torch.Tensor:
        ctx.module = module
        ctx.save_for_backward(x)
        return module(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            torch.autograd.backward(ctx.module(again), grads)
        return again.grad, None


def test_a_function_that_is_given_a_module_breaks_and_says_so() -> None:
    layer = torch.nn.Linear(2, 2)
    compiled = jitney.compile(lambda x: OfModule.apply(x * 2, layer) + 1, backend="eager")
    x, y = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    with observe() as seen:
        torch.testing.assert_close(compiled(x), OfModule.apply(y * 2, layer) + 1)
    assert len(seen.breaks) == 1 and "is given a Linear, of which it does more than read" in seen.breaks[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_static_methods_are_those_of_the_moment(backend: str) -> None:
    class Rules:
        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            return x

        @staticmethod
        def gradient(grad: torch.Tensor) -> torch.Tensor:
            return grad * 7

    class Ruled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * Rules.forward.scale  # type: ignore[attr-defined]

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return Rules.gradient(grad)

    Rules.forward.scale = 4  # type: ignore[attr-defined]
    compiled = jitney.compile(lambda x: Ruled.apply(x), backend=backend)
    x = torch.ones(2, requires_grad=True)
    y = compiled(x)
    assert y.tolist() == [4, 4]
    Rules.gradient = staticmethod(lambda grad: grad * 11)  # type: ignore[method-assign, assignment]
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [11, 11]
    Rules.forward.scale = 6  # type: ignore[attr-defined]
    assert compiled(x).tolist() == [6, 6]


def by_setting(x: torch.Tensor) -> torch.Tensor:
    return x * 3


class ReadsAttribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return by_setting(x) * by_setting.scale  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_attributes_of_functions_are_those_of_the_moment(backend: str) -> None:
    compiled = jitney.compile(lambda x: ReadsAttribute.apply(x), backend=backend)
    for scale in (4, 6):
        by_setting.scale = scale  # type: ignore[attr-defined]
        assert compiled(torch.ones(2)).tolist() == [3 * scale] * 2
