"""The user's backward drives the compiled one: engine, hooks, accumulation, threads, memory."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe, seed_everything, t
from torch import nn

from jitney import events
from jitney.backends import Backend, CompileRequest


def both(story: Callable[[Any], Any], breaks: bool = False) -> None:
    """Assert that a story, given what wraps a function or module, ends alike: nested containers of tensors."""
    __tracebackhide__ = True
    seed_everything()
    expected = story(lambda fn: fn)
    seed_everything()
    with observe() as seen:
        found = story(lambda fn: compile_fn(fn, backend="aot_eager"))
    assert not seen.kept and seen.graphs
    assert not seen.breaks or breaks
    compare(expected, found)


def compare(a: Any, b: Any) -> None:
    if isinstance(a, torch.Tensor):
        assert a.requires_grad == b.requires_grad and a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            compare(x, y)
    else:
        assert a == b


def leaf(*shape: int) -> torch.Tensor:
    return t(*(shape or (3, 4)), requires_grad=True)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))


def f(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * x.exp()


def views_only(graph: torch.fx.GraphModule, inputs: Any, request: CompileRequest) -> Any:
    """Compiles to what returns views of memory of its own."""

    def run(*args: Any) -> Any:
        return [m.clone().view(m.shape) if isinstance(m, torch.Tensor) else m for m in graph(*args)]

    return run


MAKES_VIEWS = Backend(name="views", compile=views_only, level="aten")


def test_retain_graph() -> None:
    def story(wrap: Any) -> Any:
        x = leaf()
        out = wrap(f)(x).sum()
        out.backward(retain_graph=True)
        out.backward()
        return x.grad

    both(story)


def test_backward_twice_raises_eagers_error() -> None:
    def story(wrap: Any) -> Any:
        x = leaf()
        out = wrap(f)(x).sum()
        out.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            out.backward()
        return x.grad

    both(story)


def test_a_freed_graph_raises_eagers_error() -> None:
    x = leaf()
    out = compile_fn(f, backend="aot_eager")(x)
    torch.autograd.grad(out.sum(), x)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out.sum(), x)


def test_the_gradient_of_one_input() -> None:
    def story(wrap: Any) -> Any:
        x, y = leaf(), leaf()
        run = wrap(lambda x, y: (x * y.sin(), y.exp()))
        first = torch.autograd.grad(run(x, y)[0].sum(), x)
        second = torch.autograd.grad(run(x, y)[0].sum(), y)
        third = torch.autograd.grad(run(x, y)[1].sum(), [x, y], allow_unused=True)
        return first, second, third, x.grad

    both(story)


def test_some_inputs_do_not_require_grad() -> None:
    def story(wrap: Any) -> Any:
        run = wrap(lambda x, y, z: x * y + z)
        gradients = []
        for flags in ((True, False, False), (False, True, True), (True, True, True)):
            args = [t(3, 4).requires_grad_(flag) for flag in flags]
            run(*args).sum().backward()
            gradients.append([a.grad for a in args])
        return gradients

    both(story)


def test_hooks_on_tensors() -> None:
    def story(wrap: Any) -> Any:
        seen: list[Any] = []
        x = leaf()
        middle = x * 2
        x.register_hook(lambda g: seen.append(g.clone()))
        middle.register_hook(lambda g: g * 3)
        middle.retain_grad()
        out = wrap(f)(middle)
        out.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        out.retain_grad()
        out.sum().backward()
        return seen, x.grad, out.grad, middle.grad

    both(story)


def test_hooks_after_accumulation() -> None:
    def story(wrap: Any) -> Any:
        seen: list[Any] = []
        model = net()
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()) or setattr(p, "grad", None))
        wrap(model)(t(3, 4)).sum().backward()
        return sorted(seen, key=lambda g: (g.shape, g.sum().item())), [p.grad for p in model.parameters()]

    both(story)


def test_hooks_on_modules_around_it() -> None:
    def story(wrap: Any) -> Any:
        seen: list[Any] = []
        inner = wrap(net())

        class Outer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.inner = inner

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.inner(self.first(x)).exp()

        outer = Outer()
        with torch.no_grad():
            for p in outer.first.parameters():
                p.copy_(torch.linspace(-1, 1, p.numel()).view_as(p))
        outer.register_full_backward_hook(lambda m, gi, go: seen.append((gi, [g.clone() for g in go])))
        outer.first.register_full_backward_hook(lambda m, gi, go: seen.append([g.clone() for g in go]))
        outer(leaf()).sum().backward()
        return seen, [p.grad for p in outer.parameters()]

    both(story)


def test_accumulation_over_steps() -> None:
    def story(wrap: Any) -> Any:
        model = net()
        run = wrap(model)
        for i in range(3):
            (run(t(3, 4) + i).sum() / 3).backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        run(t(3, 4)).square().sum().backward()
        return gradients, [p.grad for p in model.parameters()]

    both(story)


def test_gradients_of_parameters_share_no_memory() -> None:
    def story(wrap: Any) -> Any:
        x, y, z = leaf(), leaf(12), leaf()
        wrap(lambda x, y, z: x.view(-1) + y + z.flatten())(x, y, z).backward(t(12))
        x.grad.zero_()
        return x.grad, y.grad, z.grad

    both(story)


def test_a_loss_of_one_of_several_results() -> None:
    def g(x: torch.Tensor, w: torch.Tensor) -> Any:
        return x * 2, (w * 0).sqrt(), w.exp(), (x * w).log(), x.norm(dim=0)

    def story(wrap: Any) -> Any:
        run = wrap(g)
        found = []
        for use in range(5):
            x, w = leaf(), leaf()
            run(x, w)[use].sum().backward()
            found.append((x.grad, w.grad))
        return found

    seed_everything()
    expected, found = story(lambda fn: fn), story(lambda fn: compile_fn(fn, backend="aot_eager"))
    for one, other in zip(expected, found, strict=True):
        for a, b in zip(one, other, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


def test_an_unused_result_whose_saved_value_comes_late_is_no_nan() -> None:
    """What the backward phase computes of inputs alone may run in the forward: it is no tangent."""

    def g(x: torch.Tensor) -> Any:
        return x * 2, (x * 0).sqrt(), (x * 0).sin().sqrt()

    def story(wrap: Any) -> Any:
        x = leaf()
        wrap(g)(x)[0].sum().backward()
        return x.grad

    both(story)


def test_the_scaler_and_autocast() -> None:
    def story(wrap: Any) -> Any:
        model = net()
        run = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        losses = []
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = run(t(3, 4)).float().square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            losses.append((loss.detach(), nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
            scaler.step(optimizer)
            scaler.update()
        return losses, list(model.parameters())

    both(story)


def test_autocast_inside() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(t(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = x @ self.weight
                return (y @ self.weight).float() + (x @ self.weight.t())

    def story(wrap: Any) -> Any:
        model, x = Twice(), leaf().detach().clone().requires_grad_()  # autocast keeps casts of leaves that are no views
        run = wrap(model)
        out = run(x)
        out.float().sum().backward()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            second = run(x)
        second.float().square().sum().backward()
        return out, second, x.grad, model.weight.grad

    both(story)


def test_backward_under_autocast_is_that_of_outside() -> None:
    """Its casts were decided when it was traced; torch advises against running it there."""
    model, gradients = net(), []
    run = compile_fn(model, backend="aot_eager")
    for enabled in (False, True):
        x = leaf()
        out = run(x).sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            gradients.append(torch.autograd.grad(out, [x, *model.parameters()]))
    compare(*gradients)


def test_create_graph_without_differentiating() -> None:
    def story(wrap: Any) -> Any:
        x = leaf()
        return torch.autograd.grad(wrap(f)(x).sum(), x, create_graph=True)[0].detach()

    both(story)


def halves() -> tuple[list[str], Any]:
    kinds: list[str] = []

    def listener(event: Any) -> None:
        if isinstance(event, events.AtenGraph):
            kinds.append(event.kind)

    return kinds, events.listen(listener)


def test_the_backward_is_compiled_when_first_called_and_once() -> None:
    kinds, listening = halves()
    with listening:
        run = compile_fn(f, backend="aot_eager")
        x = leaf()
        out = run(x)
        assert kinds == ["joint", "forward"]
        out.sum().backward()
        assert kinds == ["joint", "forward", "backward"]
        run(x).sum().backward()
        assert kinds == ["joint", "forward", "backward"]


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
def test_inference_has_no_autograd_around_it(quiet: Any) -> None:
    texts: list[str] = []
    kinds, listening = halves()
    with listening, events.listen(lambda e: texts.append(e.text) if isinstance(e, events.Artefact) else None):
        run = compile_fn(f, backend="aot_eager")
        with quiet():
            out = run(leaf())
        run(t(3, 4))
    assert not out.requires_grad
    assert kinds == ["joint", "inference"] * 2
    assert not any("_apply" in text or "save_for_backward" in text for text in texts)


def test_saved_tensor_hooks_see_what_is_saved() -> None:
    x = leaf()
    run = compile_fn(f, backend="aot_eager")
    packed: list[Any] = []

    def pack(value: torch.Tensor) -> int:
        packed.append(value.detach().clone() * 2)
        return len(packed) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda at: packed[at] / 2):
        out = run(x)
    assert packed
    expected = torch.autograd.grad(f(x).sum(), x)[0]
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], expected)


def test_saved_tensors_on_cpu() -> None:
    def story(wrap: Any) -> Any:
        x, model = leaf(), net()
        with torch.autograd.graph.save_on_cpu():
            out = wrap(model)(x)
        out.sum().backward()
        return x.grad, [p.grad for p in model.parameters()]

    both(story)


@pytest.mark.parametrize("keep", [False, True])
def test_memory_is_freed_after_the_backward(keep: bool) -> None:
    watched: list[weakref.ref[Any]] = []

    class Watched:
        def __init__(self, value: torch.Tensor) -> None:
            self.value = value
            watched.append(weakref.ref(self))

    x = leaf()
    run = compile_fn(lambda x: (x.sin().exp() * x).sum(), backend="aot_eager")
    with torch.autograd.graph.saved_tensors_hooks(Watched, lambda w: w.value):
        out = run(x)
    gc.collect()
    assert watched and all(w() is not None for w in watched)
    out.backward(retain_graph=keep)
    gc.collect()
    assert all((w() is not None) == keep for w in watched)
    del out
    gc.collect()
    assert all(w() is None for w in watched)


def test_results_do_not_keep_themselves_alive() -> None:
    """Saved results would, if they were saved as plain tensors."""
    run = compile_fn(lambda x: x.exp(), backend="aot_eager")
    out = run(leaf())
    node = weakref.ref(out.grad_fn)
    gc.disable()
    try:
        del out
        assert node() is None
    finally:
        gc.enable()


def test_a_saved_input_that_was_overwritten_raises_as_in_eager() -> None:
    def story(wrap: Any) -> Any:
        x, y = leaf(), t(3, 4)
        out = wrap(lambda x, y: x * y)(x, y)
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()

    both(story)


VIEWS = (lambda y: y, lambda y: y[0], lambda y: y.t()[1:], lambda y: y.detach())
RETURNED = (
    lambda y: (y,),
    lambda y: (y[0], y),
    lambda y: (y.sum(), y.detach()),
    lambda y: (y[1],),
    lambda y: y.chunk(2),
)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("returned", RETURNED)
def test_a_result_that_was_overwritten_is_never_used_for_gradients(view: Any, returned: Any) -> None:
    """It was saved: then autograd raises as in eager. It was not: then the gradient is that of what it was."""
    for make in (
        lambda x: x.exp(),
        lambda x: (x @ x.t()).tanh(),
        lambda x: x.softmax(-1),
        lambda x: (x @ x.t()).sigmoid(),
    ):
        x = leaf()
        expected = torch.autograd.grad(returned(make(x))[0].sum(), x)[0]
        out = compile_fn(lambda x: returned(make(x)), backend="aot_eager")(x)
        with torch.no_grad():
            view(out[-1] if out[-1].dim() else out[0]).zero_()
        try:
            found = torch.autograd.grad(out[0].sum(), x)[0]
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error) or "been modified inplace" in str(error)
        else:
            assert torch.equal(found, expected)


def test_results_written_to_in_place() -> None:
    def story(wrap: Any) -> Any:
        x = leaf()
        y, v = wrap(lambda x: (lambda y: (y, y[0]))(x * 2))(x)
        v.mul_(3)
        y.add_(1)
        w = wrap(lambda x: (x * 5)[1:])(x)
        w.mul_(x[1:])
        (y.sin().sum() + w.sum()).backward()
        return y, v, w, x.grad

    both(story)


def test_threads() -> None:
    model = net()
    run = compile_fn(model, backend="aot_eager")
    found: dict[int, Any] = {}
    errors: list[BaseException] = []

    def work(i: int) -> None:
        try:
            for _ in range(10):
                x = (t(3, 4) + i).requires_grad_()
                gradients = torch.autograd.grad(run(x).sum(), [x, *model.parameters()])
            found[i] = gradients
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for i in range(4):
        x = (t(3, 4) + i).requires_grad_()
        compare(list(torch.autograd.grad(model(x).sum(), [x, *model.parameters()])), list(found[i]))


def test_compiled_and_eager_modules_in_turn() -> None:
    def story(wrap: Any) -> Any:
        torch.manual_seed(0)
        parts = [nn.Linear(4, 4), wrap(nn.Linear(4, 4)), nn.ReLU(), wrap(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))]
        model = nn.Sequential(*parts, nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        losses = []
        for _ in range(4):
            loss = model(t(3, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, [p.detach() for p in model.parameters()]

    both(story)


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm1d(4, momentum=None),
        nn.BatchNorm1d(4, track_running_stats=False),
        nn.BatchNorm1d(4, affine=False),
        nn.InstanceNorm1d(4, track_running_stats=True),
        nn.BatchNorm1d(4).eval(),
    ],
)
def test_running_statistics(norm: nn.Module) -> None:
    def story(wrap: Any) -> Any:
        model = copy.deepcopy(norm)
        run = wrap(model)
        results = []
        for i in range(3):
            x = (t(3, 4, 5) * (i + 1)).requires_grad_()
            out = run(x)
            out.square().sum().backward()
            results.append((out, x.grad, [b.clone() for b in model.buffers()]))
        return results, [p.grad for p in model.parameters()]

    both(story, breaks=getattr(norm, "momentum", 1) is None)  # the number of batches becomes a Python float


def test_dropout_draws_what_eager_draws() -> None:
    def story(wrap: Any) -> Any:
        x = leaf(30, 40)
        out = wrap(lambda x: nn.functional.dropout(x.sin(), 0.3) * nn.functional.dropout(x, 0.5))(x)
        out.sum().backward()
        return out, x.grad, torch.rand(3)

    both(story)


def test_user_functions_inside() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return g * x * 7  # wrong on purpose: it must be this one that runs

    def story(wrap: Any) -> Any:
        x = leaf()
        wrap(lambda x: Cube.apply(x.sin()) * 2)(x).sum().backward()
        return x.grad

    both(story)


def test_results_that_carry_no_gradient_into_a_loss() -> None:
    def story(wrap: Any) -> Any:
        x = leaf()
        a, b, c = wrap(lambda x: (x * 2, x > 0, x.detach() * 3))(x)
        (a * b + c).sum().backward()
        return x.grad, a, b, c

    both(story)


def test_checkpoints_around_it() -> None:
    from torch.utils.checkpoint import checkpoint

    def story(wrap: Any) -> Any:
        x, run = leaf(), wrap(f)
        checkpoint(lambda x: run(x).exp(), x, use_reentrant=False).sum().backward()
        return x.grad

    both(story)


def test_tangents_of_other_layouts_and_expanded() -> None:
    def story(wrap: Any) -> Any:
        run, found = wrap(f), []
        for tangent in (t(4, 3).t(), t(1, 1).expand(3, 4), t(3, 8)[:, ::2], t(3, 4)):
            x = leaf()
            run(x).backward(tangent)
            found.append(x.grad)
        return found

    both(story)


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu", MAKES_VIEWS], ids=["aot_eager", "llvm_cpu", "views"])
def test_results_may_be_written_to(backend: Any) -> None:
    def g(x: torch.Tensor) -> Any:
        return x.view(2, -1).t().reshape(-1), (x.view(2, 2) @ x.view(2, 2)).t().reshape(-1), x.sum()

    def story(fn: Any, x: torch.Tensor, scale: torch.Tensor) -> Any:
        first, second, total = fn(x)
        first.mul_(2)
        second.add_(scale)
        return torch.autograd.grad(first.sum() + (second * scale).sum() + total, [x, scale])

    run = compile_fn(g, backend=backend)
    x, scale = t(4, requires_grad=True), t(4, requires_grad=True)
    compare(story(g, x, scale), story(run, x, scale))


def test_results_of_no_grad_may_be_written_to() -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        return x.view(2, -1).t().reshape(-1)

    with torch.no_grad():
        found, expected = compile_fn(g, backend="llvm_cpu")(t(4)), g(t(4))
    scale = t(4, requires_grad=True)
    compare(expected.mul_(scale), found.mul_(scale))
