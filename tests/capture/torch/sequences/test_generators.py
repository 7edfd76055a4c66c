"""Generators of random numbers in compiled code draw what they draw in eager code, in its order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn, graph_break
from torch.utils.checkpoint import checkpoint

import jitney

BACKENDS = ("eager", "aot_eager")


def _state(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn_with_argument(x: torch.Tensor, g: torch.Generator) -> Any:
    return x + torch.randn(x.shape, generator=g), torch.randperm(5, generator=g), torch.rand(2)


def in_place(x: torch.Tensor, g: torch.Generator) -> Any:
    y = torch.zeros(4, 6)
    y[:, ::2].normal_(generator=g)
    z = torch.empty(20).uniform_(-1, 1, generator=g)
    x.bernoulli_(0.5, generator=g)
    torch.nn.init.normal_(z[:5], std=0.02, generator=g)
    return x, y, z


def seeded_inside(x: torch.Tensor, g: torch.Generator) -> Any:
    own = torch.Generator().manual_seed(3)
    g.manual_seed(4)
    first = torch.randn(x.shape, generator=own)
    before = g.get_state()
    second = torch.rand(2, generator=g)
    g.set_state(before)
    return x + first, second, torch.rand(2, generator=g), torch.randn(2, generator=own)


def given_back(x: torch.Tensor, g: torch.Generator) -> Any:
    own = torch.Generator("cpu").manual_seed(3)
    y = torch.multinomial(torch.ones(9), 4, generator=own)
    return x * 2, y, own


def broken(x: torch.Tensor, g: torch.Generator) -> Any:
    own = torch.Generator()
    y = torch.randn(len(x), generator=own) + torch.randn(len(x), generator=g)
    graph_break()
    return x + y, torch.randn(3, generator=own), torch.randn(3, generator=g)


def default_seeded(x: torch.Tensor, g: torch.Generator) -> Any:
    a = torch.rand(2)
    torch.manual_seed(5)
    b = torch.rand(2)
    state = torch.get_rng_state()
    c = torch.nn.functional.dropout(x, 0.5)
    torch.set_rng_state(state)
    return a, b, c, torch.nn.functional.dropout(x, 0.5), torch.rand(2)


def forked(x: torch.Tensor, g: torch.Generator) -> Any:
    before = torch.rand(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        noise = torch.randn(x.shape)
    return x + noise, before, torch.rand(2)


def raising(x: torch.Tensor, g: torch.Generator) -> Any:
    torch.randn(3, generator=g)
    torch.manual_seed(2)
    torch.rand(1)
    raise ValueError("after the draw")


PROGRAMS = (drawn_with_argument, in_place, seeded_inside, given_back, default_seeded, forked)


def _observed(f: Callable[..., Any], requires_grad: bool) -> list[Any]:
    seen: list[Any] = []
    torch.manual_seed(0)
    g = _state(7)
    for size in (3, 3, 4):
        x = torch.arange(float(size), requires_grad=requires_grad)
        try:
            results = list(f(x, g))
            for value in results:
                if isinstance(value, torch.Tensor) and value.requires_grad:
                    value.sum().backward(retain_graph=True)
        except ValueError as error:
            results = [str(error)]
        seen += [r.get_state() if isinstance(r, torch.Generator) else r for r in results]
        seen += [x, x.grad, g.get_state(), torch.get_rng_state(), torch.rand(1)]
    return seen


def _same(f: Callable[..., Any], backend: str) -> None:
    grad = f is not in_place
    for ours, eagers in zip(_observed(compile_fn(f, backend=backend), grad), _observed(f, grad), strict=True):
        if isinstance(eagers, torch.Tensor):
            assert torch.equal(ours, eagers) and ours.stride() == eagers.stride() and ours.dtype == eagers.dtype
        else:
            assert ours == eagers


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", (*PROGRAMS, broken, raising), ids=lambda f: f.__name__)
def test_numbers_and_states_are_those_of_eager(f: Callable[..., Any], backend: str) -> None:
    _same(f, backend)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_generators_are_part_of_the_graph(f: Callable[..., Any]) -> None:
    compiled = compile_fn(f, fullgraph=True)
    compiled(torch.arange(3.0), _state(1))


SHARED = _state(11)


class Noise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(x.shape, generator=SHARED)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


@jitney.allow_in_graph
def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(x.shape, generator=SHARED)


def in_function(x: torch.Tensor, g: torch.Generator) -> Any:
    first = torch.rand(3, generator=SHARED)
    return Noise.apply(x), first, torch.rand(3, generator=SHARED)


def in_allowed(x: torch.Tensor, g: torch.Generator) -> Any:
    first = torch.rand(3, generator=SHARED)
    return noisy(x), first, torch.rand(3, generator=SHARED)


def in_hook(x: torch.Tensor, g: torch.Generator) -> Any:
    y = torch.rand(3, generator=SHARED)
    w = torch.ones(3, requires_grad=True)
    w.register_hook(lambda grad: grad * torch.rand(3, generator=SHARED))
    (w * w).sum().backward()
    return y, w.grad, torch.rand(3, generator=SHARED)


def in_checkpoint(x: torch.Tensor, g: torch.Generator) -> Any:
    def part(v: torch.Tensor) -> torch.Tensor:
        return v * torch.rand(v.shape, generator=g)

    return checkpoint(part, x * 2, use_reentrant=False), torch.rand(2, generator=g)


def in_vmap(x: torch.Tensor, g: torch.Generator) -> Any:
    drawn = torch.vmap(lambda v: v * torch.rand(1, generator=g), randomness="same")(x)
    torch.manual_seed(3)
    return drawn, torch.rand(2, generator=g)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", (in_function, in_allowed, in_hook, in_checkpoint, in_vmap), ids=lambda f: f.__name__)
def test_code_that_runs_as_it_is_draws_in_turn(f: Callable[..., Any], backend: str) -> None:
    SHARED.manual_seed(11)
    ours = _observed(compile_fn(f, backend=backend), True)
    SHARED.manual_seed(11)
    for one, other in zip(ours, _observed(f, True), strict=True):
        assert torch.equal(one, other) if isinstance(other, torch.Tensor) else one == other


def test_two_generators_that_are_one_and_the_default_one() -> None:
    def f(x: torch.Tensor, g: torch.Generator, h: torch.Generator) -> Any:
        return x + torch.rand(2, generator=g), torch.rand(2, generator=h), torch.rand(2), torch.rand(2, generator=g)

    def seen(run: Callable[..., Any]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        one, x = _state(1), torch.ones(2)
        results: list[torch.Tensor] = []
        for g, h in ((_state(2), _state(3)), (one, one), (one, torch.default_generator), (_state(4), one)):
            results += [*run(x, g, h), g.get_state(), h.get_state()]
        return results

    for ours, eagers in zip(seen(compile_fn(f)), seen(f), strict=True):
        assert torch.equal(ours, eagers)


def test_graph_that_fails_leaves_generators_as_they_were() -> None:
    def f(x: torch.Tensor, g: torch.Generator, at: torch.Tensor) -> Any:
        torch.manual_seed(1)
        noise = torch.rand(2, generator=g) + torch.rand(2)
        return x[at] + noise

    def seen(run: Callable[..., Any]) -> list[Any]:
        g, results = _state(2), []
        for place in (0, 1, 7):
            torch.manual_seed(9)
            try:
                results.append(run(torch.ones(3), g, torch.tensor([place])))
            except IndexError:
                results.append(torch.zeros(1))
            results += [g.get_state(), torch.get_rng_state()]
        return results

    for ours, eagers in zip(seen(compile_fn(f)), seen(f), strict=True):
        assert torch.equal(ours, eagers)


@pytest.mark.parametrize("seed", (-1, 2**64, 1.5, "a"))
def test_seeds_that_torch_does_not_take_raise_as_in_eager(seed: Any) -> None:
    def f(x: torch.Tensor) -> Any:
        try:
            return x + torch.rand(2, generator=torch.Generator().manual_seed(seed))
        except (RuntimeError, TypeError, OverflowError, ValueError) as error:
            return type(error)

    ours, eagers = compile_fn(f)(torch.ones(2)), f(torch.ones(2))
    assert torch.equal(ours, eagers) if isinstance(eagers, torch.Tensor) else ours is eagers
