"""``autograd.Function`` whose methods are class methods: what they read of their class is that of the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import jitney
from jitney.errors import Unsupported

FACTOR = 2.0


class Power(torch.autograd.Function):
    """As in libraries: helpers are class methods, which subclasses replace."""

    scale = 3.0
    shift: Any = 1

    @classmethod
    def power(cls, x: torch.Tensor, exponent: float) -> torch.Tensor:
        return cls.square(x) ** exponent * FACTOR

    @staticmethod
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    @classmethod
    def forward(cls, ctx: Any, x: torch.Tensor, exponent: float = 1.0, unused: Any = None) -> torch.Tensor:
        shape = list(x.shape)
        shape[-1] = 1
        ctx.exponent = exponent
        ctx.save_for_backward(x)
        return cls.power(x, exponent) * cls.scale + x.new_ones(shape) * cls.shift

    @classmethod
    def backward(cls, ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x * ctx.exponent, None, None


class Cubed(Power):
    @classmethod
    def square(cls, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return x * x * x

    @classmethod
    def forward(cls, ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        return cls.power(x, 1.0)

    @classmethod
    def backward(cls, ctx: Any, grad: torch.Tensor) -> Any:
        return grad * ctx.saved_tensors[0]


class ReadsInBackward(Power):
    @classmethod
    def forward(cls, ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return x * 2

    @classmethod
    def backward(cls, ctx: Any, grad: torch.Tensor) -> Any:
        return grad * cls.scale


class HandsItOn(ReadsInBackward):
    @classmethod
    def forward(cls, ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * getattr(cls, "scale")  # noqa: B009

    @classmethod
    def backward(cls, ctx: Any, grad: torch.Tensor) -> Any:
        return grad * 2


class Inherits(ReadsInBackward):
    @classmethod
    def forward(cls, ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return super().forward(ctx, x)


@pytest.fixture(params=["eager", "aot_eager"])
def backend(request: pytest.FixtureRequest) -> Any:
    """A backend that runs the captured graph, and one that traces through it."""
    return request.param


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the functions read is as it was after each test."""
    for name in ("power", "square", "scale", "shift"):
        monkeypatch.setattr(Power, name, vars(Power)[name])
    monkeypatch.setitem(globals(), "FACTOR", FACTOR)
    yield


def same(fn: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    given = [torch.linspace(0.5, 2, 6).reshape(2, 3).requires_grad_() for _ in "12"]
    results = [called(x) for called, x in zip((fn, compiled), given, strict=True)]
    torch.testing.assert_close(results[1], results[0])
    for result in results:
        result.sum().backward()
    torch.testing.assert_close(given[1].grad, given[0].grad)


@pytest.mark.parametrize("cls", [Power, Cubed])
def test_class_methods_are_part_of_the_graph(cls: Any, backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return cls.apply(x * 2).sin()

    same(fn, jitney.compile(fn, backend=backend, fullgraph=True))


def change_value() -> None:
    Power.scale = 5.0


def change_method() -> None:
    Power.power = classmethod(lambda cls, x, exponent: x * 7)  # type: ignore[method-assign, assignment]


def change_method_of_method() -> None:
    Power.square = staticmethod(lambda x: x * 9)  # type: ignore[method-assign, assignment]


def change_global() -> None:
    globals()["FACTOR"] = 11.0


def change_to_tensor() -> None:
    Power.shift = torch.tensor(4.0)


CHANGES = [change_value, change_method, change_method_of_method, change_global, change_to_tensor]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_read_through_the_class_is_that_of_the_moment(change: Callable[[], None], backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return Power.apply(x * 2, 2.0).sin()

    compiled = jitney.compile(fn, backend=backend)
    same(fn, compiled)
    change()
    same(fn, compiled)


def test_a_value_that_the_frame_has_written_to_the_class(backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        Power.scale = 6.0
        return Power.apply(x * 2)

    Power.scale = 3.0
    compiled = jitney.compile(fn, backend=backend)
    x = torch.ones(2, 3)
    got = compiled(x)
    torch.testing.assert_close(got, fn(x))


def test_a_backward_reads_its_class_when_it_runs(backend: str) -> None:
    compiled = jitney.compile(lambda x: ReadsInBackward.apply(x), backend=backend)
    x = torch.ones(2, requires_grad=True)
    y = compiled(x)
    Power.scale = 13.0
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [13, 13]


@pytest.mark.parametrize("cls", [ReadsInBackward, HandsItOn, Inherits])
def test_what_else_is_done_with_the_class_is_refused(cls: Any) -> None:
    same(cls.apply, jitney.compile(lambda x: cls.apply(x), backend="aot_eager"))
    with pytest.raises(Unsupported, match=r"its class|the function around it"):
        jitney.compile(lambda x: cls.apply(x), backend="eager", fullgraph=True)(torch.ones(2, requires_grad=True))
