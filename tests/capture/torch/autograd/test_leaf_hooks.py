"""Hooks on parameters in a whole step: they run where the engine would run them, and are part of the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import observe
from torch import nn, optim

import jitney

Wrap = Callable[[Any], Any]
STORIES: dict[str, Callable[[Wrap], Any]] = {}
# Those with a graph break, and a part of its reason.
BREAKS = {
    "one_that_answers_after_accumulation": "gives something else than a gradient like its own",
    "it_returns_a_view_of_a_buffer": "gives a gradient that is a view of something else",
    "it_returns_another_size": "gives something else than a gradient like its own",
    "it_prints": "print() writes to the terminal",
    "it_decides_by_the_gradient": "needs the values of a tensor",
    "it_writes_past_autograd": "whose hook writes past autograd",
    "it_raises": "ValueError is raised",
    "gradients_that_are_asked_for": "a tensor that has hooks",
}


def story(tell: Callable[[Wrap], Any]) -> Callable[[Wrap], Any]:
    STORIES[tell.__name__] = tell
    return tell


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))


def end(module: nn.Module) -> Any:
    return [(p.detach(), p.grad, None if p.grad is None else p.grad.stride()) for p in module.parameters()]


def trained(wrap: Wrap, module: nn.Module, between: Callable[[int], None] = lambda i: None, zero: bool = True) -> Any:
    """Steps of SGD, with something done by the program before each."""
    optimizer = optim.SGD(module.parameters(), 0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        if zero:
            optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run, losses = wrap(step), []
    for i in range(5):
        between(i)
        losses.append(run(torch.randn(5, 4)))
    return losses, end(module), optimizer.state_dict()


@story
def an_optimizer_in_the_backward(wrap: Wrap) -> Any:
    """https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html"""
    model = mlp()
    optimizers = {p: optim.Adam([p], 0.01, foreach=False) for p in model.parameters()}

    def hook(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    run = wrap(step)
    losses = [run(torch.randn(5, 4)) for _ in range(4)]
    return losses, end(model), [o.state_dict() for o in optimizers.values()]


@story
def gradients_are_clipped_one_by_one(wrap: Wrap) -> Any:
    model = mlp()
    for p in model.parameters():
        p.register_hook(lambda g: g.clamp(-0.05, 0.05))
    return trained(wrap, model)


@story
def they_run_in_the_engines_order(wrap: Wrap) -> Any:
    weights = [nn.Parameter(torch.randn(3, 3)) for _ in range(5)]
    log: list[Any] = []

    def before(at: int, gradient: torch.Tensor) -> torch.Tensor | None:
        log.append((at, gradient.norm()))
        return gradient * (at + 1) if at % 2 else None

    def after(at: int, parameter: torch.Tensor) -> None:
        log.append((at, [w.grad is None for w in weights]))

    for at, w in enumerate(weights):
        w.register_hook(functools.partial(before, at))
        w.register_post_accumulate_grad_hook(functools.partial(after, at))

    def step(x: torch.Tensor) -> torch.Tensor:
        for w in weights:
            w.grad = None
        a = x @ weights[0]
        b = a @ weights[1]
        c = (a * b) @ weights[2]
        d = c @ weights[0] + b @ weights[3]
        (torch.cat([d, c]) @ weights[4]).sin().sum().backward()
        return d.detach()

    run = wrap(step)
    return [run(torch.randn(3, 3)) for _ in range(3)], log, [w.grad for w in weights]


@story
def it_comes_and_goes(wrap: Wrap) -> Any:
    model, handles, seen = mlp(), list[Any](), list[Any]()

    def between(i: int) -> None:
        if i in (1, 2):
            handles.append(model[0].weight.register_hook(lambda g: g * 2))  # type: ignore[union-attr, operator]
            handles.append(model[0].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone())))  # type: ignore[union-attr, operator]
        if i == 4:
            for handle in handles:
                handle.remove()

    return trained(wrap, model, between), seen


@story
def it_keeps_the_gradient_that_is_changed_later(wrap: Wrap) -> Any:
    model, kept = mlp(), list[Any]()
    model[0].weight.register_hook(lambda g: kept.append(g))  # type: ignore[union-attr, operator]
    model[2].weight.register_hook(kept.append)  # type: ignore[union-attr, operator]

    def step(x: torch.Tensor) -> None:
        model(x).square().mean().backward()
        for p in model.parameters():
            assert p.grad is not None
            p.grad.mul_(2)

    run = wrap(step)
    for _ in range(3):
        run(torch.randn(5, 4))
    return kept, end(model)


@story
def it_changes_the_gradient_in_place(wrap: Wrap) -> Any:
    model = mlp()

    def halve(gradient: torch.Tensor) -> None:
        gradient.mul_(0.5)

    for p in model.parameters():
        p.register_hook(halve)
    return trained(wrap, model, zero=False)


@story
def what_it_reads_changes(wrap: Wrap) -> Any:
    model, factors, mask = mlp(), [1.0], torch.ones(6, 4)
    model[0].weight.register_hook(lambda g: g * mask)  # type: ignore[union-attr, operator]
    model[0].bias.register_hook(lambda g: g * factors[0])  # type: ignore[union-attr, operator]

    def between(i: int) -> None:
        nonlocal mask
        factors[0] = 0.5 * i
        if i == 2:
            mask[0] = 0
        if i == 3:
            mask = torch.full((6, 4), 0.5)

    return trained(wrap, model, between)


@story
def a_method_that_counts(wrap: Wrap) -> Any:
    model = mlp()

    class Norms:
        def __init__(self) -> None:
            self.count = 0
            self.norms: dict[str, torch.Tensor] = {}

        def __call__(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
            self.count += 1
            self.norms[name] = gradient.norm()
            return gradient / (1 + gradient.norm())

    norms = Norms()
    for name, p in model.named_parameters():
        p.register_hook(functools.partial(norms, name))
    return trained(wrap, model), norms.count, norms.norms


@story
def a_tied_parameter_has_one_gradient(wrap: Wrap) -> Any:
    model, count = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), [0]
    model[2].weight = model[0].weight

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        count[0] += 1
        return gradient + count[0]

    model[0].weight.register_hook(hook)  # type: ignore[union-attr, operator]
    return trained(wrap, model), count


@story
def random_noise_is_added(wrap: Wrap) -> Any:
    model = mlp()
    for p in model.parameters():
        p.register_hook(lambda g: g + 0.01 * torch.randn_like(g))
    return trained(wrap, model), torch.get_rng_state()


@story
def gradients_are_moved_elsewhere(wrap: Wrap) -> Any:
    model, sums = mlp(), dict[Any, torch.Tensor]()

    def hook(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        sums[parameter] = sums.get(parameter, 0) + parameter.grad.bfloat16()
        parameter.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    run = wrap(lambda x: model(x).square().mean().backward())
    for _ in range(3):
        run(torch.randn(5, 4))
    return end(model), list(sums.values())


@story
def only_some_gradients_are_asked_for(wrap: Wrap) -> Any:
    model, log = mlp(), list[Any]()
    for p in model.parameters():
        p.register_hook(lambda g: g * 2)
        p.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum()))
    some = [model[2].weight, model[0].bias]
    run = wrap(lambda x: model(x).square().mean().backward(inputs=some))
    for _ in range(3):
        run(torch.randn(5, 4))
    return end(model), log


@story
def frozen_parameters_have_none(wrap: Wrap) -> Any:
    model = mlp()
    for p in model.parameters():
        p.register_hook(lambda g: g * 2)
    return trained(wrap, model, lambda i: model[0].requires_grad_(i % 2 == 0) and None)


@story
def it_returns_a_view_of_a_buffer(wrap: Wrap) -> Any:
    model, buffer = mlp(), torch.ones(7, 6)
    model[0].bias.register_hook(lambda g: buffer[2])  # type: ignore[union-attr, operator]
    return trained(wrap, model), buffer


@story
def it_returns_another_size(wrap: Wrap) -> Any:
    model = mlp()
    model[0].weight.register_hook(lambda g: g[0])  # type: ignore[union-attr, operator]
    run = wrap(lambda x: model(x).sum().backward())
    with pytest.raises(RuntimeError, match="has changed the size of value"):
        run(torch.randn(5, 4))


@story
def it_prints(wrap: Wrap) -> Any:
    model = mlp()
    model[0].weight.register_hook(lambda g: print(end=""))  # type: ignore[union-attr, operator]
    return trained(wrap, model)


@story
def it_decides_by_the_gradient(wrap: Wrap) -> Any:
    model = mlp()
    model[0].weight.register_hook(lambda g: g * 0 if g.norm() > 0.3 else g)  # type: ignore[union-attr, operator]
    return trained(wrap, model)


@story
def it_writes_past_autograd(wrap: Wrap) -> Any:
    """What the engine has saved, and reads afterwards, may be what is written to: nobody would tell."""
    model = mlp()

    def hook(parameter: torch.Tensor) -> None:
        parameter.data.add_(parameter.grad, alpha=-0.1)  # type: ignore[arg-type]
        parameter.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    run = wrap(lambda x: model(x).square().mean().backward())
    for _ in range(2):
        run(torch.randn(5, 4))
    return end(model)


@story
def it_raises(wrap: Wrap) -> Any:
    w, count = nn.Parameter(torch.randn(3)), [0]

    def hook(gradient: torch.Tensor) -> None:
        count[0] += 1
        if count[0] == 2:
            raise ValueError("two")

    w.register_hook(hook)
    run = wrap(lambda x: (w * x).sum().backward())
    run(torch.ones(3))
    with pytest.raises(ValueError, match="two"):
        run(torch.ones(3))
    run(torch.ones(3))
    return w.grad, count


@story
def one_that_answers_after_accumulation(wrap: Wrap) -> Any:
    w = nn.Parameter(torch.randn(3))
    w.register_post_accumulate_grad_hook(lambda parameter: parameter.grad.mul_(2))  # type: ignore[arg-type, return-value, union-attr]
    run = wrap(lambda x: (w * x).sum().backward())
    with pytest.raises(RuntimeError, match="should return None"):
        run(torch.ones(3))
    return w.grad


@story
def gradients_that_are_asked_for(wrap: Wrap) -> Any:
    model = mlp()
    model[0].weight.register_hook(lambda g: g * 2)  # type: ignore[union-attr, operator]
    run = wrap(lambda x: torch.autograd.grad(model(x).sum(), [model[0].weight, model[2].weight]))
    return [run(torch.randn(5, 4)) for _ in range(2)]


CASES = [(name, backend) for backend in ("eager", "aot_eager") for name in STORIES]
CASES += [(name, "llvm_cpu") for name in ("an_optimizer_in_the_backward", "it_changes_the_gradient_in_place")]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_it_ends_as_in_eager(name: str, backend: str) -> None:
    ends = []
    with observe() as seen:
        for wrap in (lambda fn: fn, lambda fn: jitney.compile(fn, backend=backend, fullgraph=name not in BREAKS)):
            torch.manual_seed(0)
            ends.append(STORIES[name](wrap))
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-5)
    assert not seen.skips and not seen.kept
    assert name not in BREAKS or any(BREAKS[name] in reason for reason in seen.breaks), seen.breaks


def test_steps_with_hooks_compile_once_more_for_the_optimizers_state() -> None:
    with observe() as seen:
        STORIES["an_optimizer_in_the_backward"](lambda fn: jitney.compile(fn, backend="aot_eager", fullgraph=True))
    assert len(seen.graphs) == 2
