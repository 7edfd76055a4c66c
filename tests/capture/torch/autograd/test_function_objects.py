"""An ``autograd.Function`` that is given an object, of which its forward reads plain values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import compile_fn, observe
from torch import nn


class Settings:
    """What a program keeps numbers in."""

    def __init__(self, scale: float = 2.0, shift: int = 3) -> None:
        self.scale = scale
        self.inner = nn.Identity()
        self.inner.shift = shift
        self.weight = torch.ones(3)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, settings: Any) -> torch.Tensor:
        ctx.scale = settings.scale
        ctx.save_for_backward(x)
        return x * settings.scale + settings.inner.shift

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return grads[0] * ctx.scale * x, None


class Layer(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale, self.inner = scale, nn.Identity()
        self.inner.shift = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale = self.scale + 1  # which waits for the graph
        return Scaled.apply(x, self)


class Keeps(Scaled):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, settings: Any) -> torch.Tensor:
        ctx.settings = settings
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0] * ctx.settings.scale, None


class Weighs(Scaled):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, settings: Any) -> torch.Tensor:
        ctx.scale = 1
        ctx.save_for_backward(x)
        return x * settings.weight


def _told(f: Any, change: Any) -> list[Any]:
    found = []
    for call in range(3):
        x = torch.arange(3.0, requires_grad=True)
        y = f(x)
        change(call)
        y.sum().backward()
        found += [y.tolist(), [] if x.grad is None else x.grad.tolist()]
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_the_forward_reads_is_guarded(backend: str) -> None:
    def sides(wrap: Any, changes: bool) -> list[Any]:
        settings, layers = Settings(), nn.Sequential(Layer(1.5), Layer(2.5))

        def change(call: int) -> None:
            settings.inner.shift += changes * call
            settings.scale *= 1 + changes

        functions = [lambda x: Scaled.apply(x, settings), lambda x: Scaled.apply(x, Settings(4.0, 5))]
        return [_told(wrap(f), change) for f in (*functions, *([layers] if changes else []))]

    for changes in (False, True):
        with observe() as seen:
            found = sides(lambda f: compile_fn(f, backend=backend), changes)
        assert found == sides(lambda f: f, changes)
        assert bool(seen.breaks) is changes  # a constant for each number would compile again and again


class Counts:
    """Attributes that code computes."""

    def __init__(self) -> None:
        self.n = 0

    @property
    def next(self) -> float:
        self.n += 1
        return float(self.n)

    @property
    def mode(self) -> float:
        return 2.0 if torch.is_grad_enabled() else 3.0

    def __getattr__(self, name: str) -> float:
        self.n += 1
        return self.n * 10.0


class Computes(Scaled):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, counts: Any) -> torch.Tensor:
        ctx.scale = counts.mode
        ctx.save_for_backward(x)
        for _ in range(3):
            x = x * counts.next
        if x.shape[0] > 5:
            return x * counts.next
        return x * counts.other


class Names(Scaled):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, settings: Any) -> torch.Tensor:
        ctx.scale = 1.0
        ctx.save_for_backward(x)
        return x * (2.0 if settings.name is WORD else 3.0)


WORD = "a word"


@pytest.mark.parametrize("function", [Computes, Names])
def test_what_code_computes_is_asked_for_as_often_as_in_eager(function: Any) -> None:
    def told(wrap: Any) -> list[Any]:
        counts = Counts()
        counts.name = WORD

        def change(call: int) -> None:
            counts.name = WORD if call else "".join(["a", " word"])

        return [*_told(wrap(lambda x: function.apply(x, counts)), change), counts.n]

    assert told(lambda f: compile_fn(f, backend="aot_eager")) == told(lambda f: f)


@pytest.mark.parametrize("function", [Keeps, Weighs])
def test_what_else_is_done_with_it_is_a_graph_break(function: Any) -> None:
    def told(wrap: Any) -> list[Any]:
        settings = Settings()

        def change(call: int) -> None:
            settings.scale *= 2

        return _told(wrap(lambda x: function.apply(x, settings)), change)

    with observe() as seen:
        found = told(lambda f: compile_fn(f, backend="aot_eager"))
    assert found == told(lambda f: f)
    assert seen.breaks


class Rounded(torch.autograd.Function):
    """Its forward and backward can tell numbers from symbols."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bits: int, shift: float = 0.0) -> torch.Tensor:
        ctx.bits = bits
        levels = 2**bits - 1 if isinstance(bits, int) else 0
        return (x * levels).round() / levels + (shift if type(shift) is float else 100) + len(str(bits))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return grads[0] * ({2: 5, 3: 6}.get(ctx.bits, 7) if isinstance(ctx.bits, int) else 0), None, None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_numbers_that_change_are_constants_up_to_half_of_the_forms(backend: str) -> None:
    def fn(x: torch.Tensor, *numbers: Any) -> torch.Tensor:
        return Rounded.apply(x * 2, *numbers)  # type: ignore[no-any-return]

    compiled = compile_fn(fn, backend=backend)
    with observe() as seen:
        for numbers in ((2,), (3,), (5,), (4, 0.5), (6, 0.25), (7, 0.75), (3, 1.5), (9, -0.5)):
            x, y = (torch.linspace(0, 1, 5).requires_grad_() for _ in range(2))
            wanted, got = fn(x, *numbers), compiled(y, *numbers)
            wanted.sum().backward()
            got.sum().backward()
            assert torch.equal(got, wanted)
            assert torch.equal(y.grad, x.grad)  # type: ignore[arg-type]
            assert len(numbers) == 2 or not seen.breaks
    assert not seen.skips
