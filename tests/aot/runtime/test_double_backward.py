"""Derivatives of a compiled backward's gradients: those of eager, or an error that says why not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe
from torch import nn
from torch.nn import functional as F  # noqa: N812

from jitney.errors import JitneyError

BACKENDS = ["aot_eager", "llvm_cpu"]
Story = Callable[[Callable[[Any], Any]], Any]  # what somebody does, given how to compile a function


def both(story: Story, backend: str = "aot_eager") -> None:
    """The same of a story compiled and in eager."""
    with observe() as seen:
        found = story(lambda f: compile_fn(f, backend=backend))
    assert not seen.breaks
    torch.testing.assert_close(found, story(lambda f: f), rtol=1e-4, atol=1e-6)


def t(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Softplus(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).squeeze(1)


def gradients(module: nn.Module) -> list[Any]:
    return [p.grad for p in module.parameters()]


def gradient_penalty(wrap: Any) -> Any:
    torch.manual_seed(0)
    model = Critic()
    run = wrap(model)
    for step in range(2):
        x = t(6, 4, seed=step).requires_grad_()
        out = run(x)
        (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (out.mean() + (grad.norm(dim=1) - 1).square().mean()).backward()
    return gradients(model)


def penalty_of_an_inner_tensor(wrap: Any) -> Any:
    """What is given to the function is made of what is differentiated by, and is dropped."""
    torch.manual_seed(0)
    model = Critic()
    run, x = wrap(model), t(6, 4).requires_grad_()
    out = run(x.sin() * 2).sum()
    gc.collect()
    (grad,) = torch.autograd.grad(out, x, create_graph=True)
    grad.square().sum().backward()
    return [x.grad, *gradients(model)]


def hessian_vector_product(wrap: Any) -> Any:
    torch.manual_seed(0)
    model = Critic()
    run, x = wrap(model), t(6, 4)
    params = list(model.parameters())
    first = torch.autograd.grad(run(x).pow(2).sum(), params, create_graph=True)
    vector = [torch.ones_like(p) / 3 for p in params]
    product = sum((g * v).sum() for g, v in zip(first, vector, strict=True))
    return torch.autograd.grad(product, params, allow_unused=True)


def maml(wrap: Any) -> Any:
    x, y, target = t(5, 3), t(5, 3, seed=1), t(5)
    w, b = t(3, seed=2).requires_grad_(), t(1, seed=3).requires_grad_()

    def loss(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x @ w + b) - target).square().mean()

    run = wrap(loss)
    fast = (w, b)
    for _ in range(2):
        grads = torch.autograd.grad(run(x, *fast), fast, create_graph=True)
        fast = tuple(p - 0.1 * g for p, g in zip(fast, grads, strict=True))
    run(y, *fast).backward()
    return w.grad, b.grad


def third_order(wrap: Any) -> Any:
    run, x = wrap(lambda x: (x.sin() * x.exp()).sum()), t(4).requires_grad_()
    value, found = run(x), []
    for _ in range(3):
        (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        found.append(value)
    return found


STORIES = [gradient_penalty, penalty_of_an_inner_tensor, hessian_vector_product, maml, third_order]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("story", STORIES)
def test_what_people_do(story: Story, backend: str) -> None:
    both(story, backend)


def sizes_that_change(wrap: Any) -> Any:
    run, found = wrap(lambda x, n: (x.exp() * x * n).sum(0)), []
    for size in (3, 5, 7):
        x = t(size, 2).requires_grad_()
        (grad,) = torch.autograd.grad(run(x, size / 2).sum(), x, create_graph=True)
        grad.pow(2).sum().backward()
        found.append(x.grad)
    return found


def some_results_unused(wrap: Any) -> Any:
    run, x = wrap(lambda x, y: (x.sin() * y, x.exp(), y.cos())), t(3).requires_grad_()
    y = t(3, seed=1).requires_grad_()
    for at in range(3):
        out = run(x, y)[at]
        grads = torch.autograd.grad(out.sum(), (x, y), create_graph=True, allow_unused=True)
        sum(g.square().sum() for g in grads if g is not None).backward()  # type: ignore[union-attr]
    return x.grad, y.grad


def by_the_weights(wrap: Any) -> Any:
    """The gradient of the gradient by what the results were weighted with (the trick of two backwards)."""
    run, x = wrap(lambda x: x.sin() * x), t(3).requires_grad_()
    weights = torch.zeros(3, requires_grad=True)
    (grad,) = torch.autograd.grad(run(x), x, weights, create_graph=True)
    return torch.autograd.grad(grad, weights, t(3, seed=1))


def functions_of_torch(wrap: Any) -> Any:
    run = wrap(lambda x: (x.sin() * x).sum())
    vectorized = torch.autograd.functional.hessian(run, t(3), vectorize=True)
    batch = torch.autograd.functional.jacobian(run, t(3), create_graph=True, vectorize=True)
    return (
        torch.autograd.functional.hessian(run, t(3)),
        torch.autograd.functional.jvp(run, t(3), t(3)),
        vectorized,
        batch,
    )


def kept_graph(wrap: Any) -> Any:
    run, x = wrap(lambda x: (x.sin() * x).sum()), t(3).requires_grad_()
    out = run(x)
    first = [torch.autograd.grad(out, x, create_graph=True)[0] for _ in range(2)]
    (first[0] * first[1]).sum().backward(retain_graph=True)
    first[0].sum().backward()
    return x.grad


def without_grad_at_first(wrap: Any) -> Any:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = x.abs().mean()
        return (x.sin() * scale * x.detach()).sum()

    run, x = wrap(program), t(3).requires_grad_()
    (grad,) = torch.autograd.grad(run(x), x, create_graph=True)
    return torch.autograd.grad(grad.sum(), x)


def in_autocast(wrap: Any) -> Any:
    torch.manual_seed(0)
    model = Critic()
    run, x = wrap(model), t(6, 4).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = run(x)
    (grad,) = torch.autograd.grad(out.float().sum(), x, create_graph=True)
    grad.square().sum().backward()
    assert not torch.is_autocast_enabled("cpu")
    return [(g * 20).round() for g in gradients(model)[:2]]


def batch_norm(wrap: Any) -> Any:
    """Its statistics are written to, once."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4)
    model = nn.Sequential(nn.Linear(4, 4), norm, nn.Tanh())
    run, x = wrap(model), t(6, 4).requires_grad_()
    (grad,) = torch.autograd.grad(run(x).pow(3).sum(), x, create_graph=True)
    grad.square().sum().backward()
    return [x.grad, *norm.buffers(), *gradients(norm)]


def batches_that_are_differentiated(wrap: Any) -> Any:
    run, x = wrap(lambda x: x.exp().reshape(3, 2).t().chunk(2)), t(6).requires_grad_()
    a, b = run(x)
    (grad,) = torch.autograd.grad((a, b), x, (t(4, 1, 3),) * 2, is_grads_batched=True, create_graph=True)
    run = wrap(lambda x: (x.exp() * x).sum(0))
    out = run(x)
    rows = torch.vmap(lambda v: torch.autograd.grad(out, x, v, create_graph=True)[0])(t(2))
    return grad, torch.autograd.grad(grad.square().sum() + rows.square().sum(), x)


class OneSided(torch.autograd.Function):
    """A product, as if the second factor were a constant."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return g * ctx.saved_tensors[1], None


def gradients_of_what_has_none(wrap: Any) -> Any:
    run, x, w = wrap(lambda x, w: OneSided.apply(x, w).sum()), t(3).requires_grad_(), t(3, seed=1).requires_grad_()
    (grad,) = torch.autograd.grad(run(x, w * 1), x, create_graph=True)
    return torch.autograd.grad(grad.square().sum(), (x, w), allow_unused=True)


def detached_inside(wrap: Any) -> Any:
    run, x, w = wrap(lambda x, w: x.exp() * w.detach().sum()), t(3).requires_grad_(), t(1000).requires_grad_()
    (grad,) = torch.autograd.grad(run(x, w * 1).sum(), x, create_graph=True)
    return torch.autograd.grad(grad.square().sum(), (x, w), allow_unused=True)


def asked_for_later(wrap: Any) -> Any:
    run, x, y = wrap(lambda x, y: (x * y).sum()), t(3).requires_grad_(), t(3, seed=1)
    out = run(x, y)
    y.requires_grad_()
    (grad,) = torch.autograd.grad(out, x, create_graph=True)
    return torch.autograd.grad(grad.square().sum(), (x, y), allow_unused=True)


def gradients_that_are_written_to(wrap: Any) -> Any:
    found = []
    for program in (lambda x: x.view(-1) * 1, lambda x: x.t() + 1, lambda x: x[0], lambda x: torch.cat([x, x])):
        run, x = wrap(program), t(3, 3).requires_grad_()
        (grad,) = torch.autograd.grad(run(x).sin().sum(), x, create_graph=True)
        grad.mul_(2).add_(x)
        found += [grad, *torch.autograd.grad(grad.square().sum(), x)]
    return found


def parts_of_complex_numbers(wrap: Any) -> Any:
    run = wrap(
        lambda x: (lambda z: (z.real, z.imag, torch.view_as_real(z.exp())))((torch.view_as_complex(x) * 1j).sin())
    )
    x = t(3, 2).requires_grad_()
    (grad,) = torch.autograd.grad(sum(out.sin().sum() for out in run(x)), x, create_graph=True)
    return torch.autograd.grad(grad.square().sum(), x)


def a_bias_that_is_written_to(wrap: Any) -> Any:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 3), t(2, 3).requires_grad_()
    out = wrap(model)(x)
    with torch.no_grad():
        model.bias.add_(1)
    (grad,) = torch.autograd.grad(out, x, torch.ones(2, 3, requires_grad=True), create_graph=True)
    return torch.autograd.grad(grad.square().sum(), model.weight)


def statistics_several_times(wrap: Any) -> Any:
    norm = nn.BatchNorm1d(4)
    run, x = wrap(nn.Sequential(norm, nn.Tanh())), t(6, 4).requires_grad_()
    (grad,) = torch.autograd.grad(run(x).pow(3).sum(), x, create_graph=True)
    found = [torch.autograd.grad(grad.pow(n).sum(), x, retain_graph=True)[0] for n in (2, 3)]
    return [*found, *norm.buffers()]


MORE = [batches_that_are_differentiated, gradients_of_what_has_none, detached_inside, asked_for_later]
MORE += [a_bias_that_is_written_to, gradients_that_are_written_to, parts_of_complex_numbers, statistics_several_times]
MORE += [sizes_that_change, some_results_unused, by_the_weights, functions_of_torch, kept_graph, without_grad_at_first]
MORE += [in_autocast, batch_norm]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch.func's own
@pytest.mark.parametrize("story", MORE)
def test_what_else_people_do(story: Story) -> None:
    both(story)


# ---------------------------------------------------------------------- what is refused


def grown(run: Any, x: torch.Tensor, *others: Any, before: Any = lambda: None) -> torch.Tensor:
    """A gradient made with create_graph."""
    out = run(x, *others)
    before()
    return torch.autograd.grad(out.sum(), x, create_graph=True)[0]


def refused(run: Any, reason: str, *others: Any, before: Any = lambda: None) -> None:
    x = t(3).requires_grad_()
    gradient = grown(run, x, *others, before=before)
    with pytest.raises(JitneyError, match=f"double backward.*{reason}"):
        gradient.sum().backward()


def test_random_numbers_are_refused() -> None:
    refused(compile_fn(lambda x: F.dropout(x.exp(), 0.5), backend="aot_eager"), "draws random numbers")


@torch.library.custom_op("jitney_tests_again::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    """Draws, and does not say so."""
    return x * torch.rand_like(x)


noisy.register_fake(torch.empty_like)


def _slope(ctx: Any, g: torch.Tensor) -> torch.Tensor:
    x, out = ctx.saved_tensors
    slope: torch.Tensor = g * out / x
    return slope


noisy.register_autograd(_slope, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, output))


def test_random_numbers_that_no_operator_tells_of_are_refused() -> None:
    run = compile_fn(lambda x: noisy(x).square(), backend="aot_eager")
    gradient = grown(run, x := t(3).requires_grad_())
    before = torch.get_rng_state()
    with pytest.raises(JitneyError, match="double backward.*draws random numbers"):
        torch.autograd.grad(gradient.sum(), x)
    assert torch.equal(torch.get_rng_state(), before)


def test_gradients_that_depend_on_what_is_written_are_refused() -> None:
    def program(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        out = x.exp() + state
        state.add_(1)
        return out.square()

    refused(compile_fn(program, backend="aot_eager"), "an input that it writes to", torch.ones(3))


def sums(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """The backward needs the sums alone."""
    return x.exp() * y.sum() * z.sum()


@pytest.mark.parametrize("place", [0, 1])
def test_what_was_written_to_meanwhile_is_refused(place: int) -> None:
    others = [torch.ones(1000), torch.ones(1000, requires_grad=True)]

    def write() -> None:
        with torch.no_grad():
            others[place].add_(1)

    refused(compile_fn(sums, backend="aot_eager"), "written to meanwhile", *others, before=write)


def test_what_the_backward_itself_needs_is_autograds_error() -> None:
    run = compile_fn(lambda x, y: x * y, backend="aot_eager")
    y = torch.ones(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grown(run, t(3).requires_grad_(), y, before=lambda: y.add_(1))


def test_written_after_the_first_backward_is_autograds_error() -> None:
    run, x, y = compile_fn(sums, backend="aot_eager"), t(3).requires_grad_(), torch.ones(1000)
    gradient = grown(run, x, y, torch.ones(1000))
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradient.sum().backward()


def test_an_input_that_is_gone_is_refused() -> None:
    run, x = compile_fn(lambda x, y: x.exp() * y.sum(), backend="aot_eager"), t(3).requires_grad_()
    run(x, torch.ones(1000))  # the capture's own references to its arguments go with it
    out = run(x, torch.ones(1000)).sum()
    (gradient,) = torch.autograd.grad(out, x, create_graph=True)
    with pytest.raises(JitneyError, match="double backward.*is gone"):
        gradient.sum().backward()


def test_another_state_of_torch_is_refused() -> None:
    run, x = compile_fn(lambda x: x.exp(), backend="aot_eager"), t(3).requires_grad_()
    gradient = grown(run, x)
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(JitneyError, match="default dtype"):
            gradient.sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)


def results_in_one_memory(wrap: Any) -> Any:
    run, x = wrap(lambda x: (x.exp().reshape(2, 3).t().chunk(3), x.sin()[None])), t(6).requires_grad_()
    (a, _, c), d = run(x)
    (grad,) = torch.autograd.grad(a.sum() + c.square().sum() + d.sum(), x, create_graph=True)
    grad.square().sum().backward()
    return x.grad


def test_results_that_are_views_of_what_nobody_sees() -> None:
    both(results_in_one_memory)


def results_that_share_elements(wrap: Any) -> Any:
    x = t(3).requires_grad_()
    a, b, c = wrap(lambda x: (lambda y: (y[:2], y[1:], x.cos()[None].expand(4, 3)))(x.exp()))(x)
    (grad,) = torch.autograd.grad(a.sum() + b.square().sum() + c.pow(3).sum(), x, create_graph=True)
    grad.square().sum().backward()
    return x.grad


def test_results_that_share_elements() -> None:
    both(results_that_share_elements)


def test_complex_results_that_share_elements_are_refused() -> None:
    run = compile_fn(lambda x: (lambda y: (y[:2], y[1:]))(x.exp()), backend="aot_eager")
    x = torch.randn(3, dtype=torch.complex64).requires_grad_()
    a, b = run(x)
    (gradient,) = torch.autograd.grad((a.sum() + b.sum()).abs(), x, create_graph=True)
    with pytest.raises(JitneyError, match="double backward.*share elements"):
        gradient.abs().sum().backward()


# ---------------------------------------------------------------------- memory


def test_nothing_is_held_beyond_the_graph() -> None:
    run = compile_fn(lambda x, y: (x.exp() * y.sum()).sum(), backend="aot_eager")
    gc.disable()
    try:
        for create in (False, True):
            x = t(3).requires_grad_()
            y = x * 2
            held = weakref.ref(y)
            out = run(x, y)
            y += out  # its history now leads to the graph that it was given to
            if create:
                (gradient,) = torch.autograd.grad(out, x, create_graph=True, retain_graph=True)
                del gradient
            del y, out
            assert held() is None
    finally:
        gc.enable()


def test_a_backward_frees_what_was_kept() -> None:
    run = compile_fn(lambda x, y: (x.exp() * y.sum()).sum(), backend="aot_eager")
    x = t(3).requires_grad_()
    y = x * 2
    held = weakref.ref(y)
    out = run(x, y)
    del y
    out.backward()
    assert held() is None and x.grad is not None
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_what_no_gradient_depends_on_is_not_kept() -> None:
    """Training with graph breaks needs no more memory than in eager."""
    run, x = compile_fn(lambda x, y: (x.exp() + y * 2).sum(), backend="aot_eager"), t(3).requires_grad_()
    for _ in range(2):
        y = x * 2
        held = weakref.ref(y)
        out = run(x, y)
        del y
    assert held() is None
    (grad,) = torch.autograd.grad(out, x, create_graph=True)
    (found,) = torch.autograd.grad(grad.sum(), x)
    torch.testing.assert_close((grad, found), (x.exp() + 4, x.exp()))
