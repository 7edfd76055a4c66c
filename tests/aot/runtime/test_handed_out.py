"""Results that other results are computed from: for autograd they are what they are in eager."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import grad
from torch.autograd.graph import get_gradient_edge

from jitney import events
from jitney.errors import JitneyError

BACKENDS = ["aot_eager", "llvm_cpu"]
Results = tuple[torch.Tensor, ...]
Program = Callable[..., Results]


def t(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


WEIGHT = t(4, 4, seed=9)


def pair(x: torch.Tensor) -> Results:
    y = x * 2
    return y, (y**2).sum()


def steps(x: torch.Tensor) -> Results:
    a = x.sin()
    b = a * a + x
    c = (b * a).cos()
    return a, b, c, (c * x).sum()


def views(x: torch.Tensor) -> Results:
    h = (x @ WEIGHT).view(4, 3)
    return h, (h**2).sum(), h.t()


def parts(x: torch.Tensor) -> Results:
    q, k = (x @ WEIGHT).chunk(2, 1)
    return q, k, (q * k).sum(), k.t()[0]


def view_of_argument(x: torch.Tensor) -> Results:
    v = x.view(-1)
    return v, (v**2).sum(), v[2:5]


def written(x: torch.Tensor) -> Results:
    y = x * 3
    y.mul_(x)
    return y, y.exp().mean()


def kept_by_operators(x: torch.Tensor) -> Results:
    """Operators keep their results, so that second derivatives come there."""
    a = torch.tanh(x * 2)
    b = a.softmax(1)
    return a, b, (b.exp() + a**3).sum()


def expanded(x: torch.Tensor) -> Results:
    s = x.sum(0, keepdim=True)
    return s, s.expand(3, 4) + x, (s + 1).sum()


def without_a_gradient(x: torch.Tensor) -> Results:
    y = x.floor()
    return y, (y * x).sum()


PROGRAMS = [pair, steps, kept_by_operators, views, parts, view_of_argument, expanded, without_a_gradient]


def by_each(f: Program, x: torch.Tensor, i: int, j: int) -> list[Any]:
    """Ways to ask what result ``i`` contributes to result ``j``."""
    told: list[Any] = []
    r = f(x)
    told.append(grad(r[i].sum() + r[j].square().sum(), r[j]))
    r = f(x)
    told.append(grad(r[i].square().sum(), [r[j], x], allow_unused=True))
    r = f(x)
    r[j].retain_grad()
    x.grad = None
    r[i].square().sum().backward()
    told += [r[j].grad, x.grad]
    r = f(x)
    r[i].square().sum().backward(inputs=[r[j]])
    told.append(r[j].grad)
    r = f(x)
    x.grad = None
    r[j].register_hook(lambda g: g if g is None else g * 10)
    r[i].square().sum().backward()
    return [*told, x.grad]


def twice(f: Program, x: torch.Tensor, i: int, j: int) -> list[Any]:
    """The same of derivatives; one that is zero may as well be none."""
    r = f(x)
    found = grad(r[i].pow(3).sum(), [r[j], x], create_graph=True, allow_unused=True)
    penalty = torch.stack([g.square().sum() for g in found if g is not None]).sum()
    asked = grad(penalty, [x, r[j]], allow_unused=True) if penalty.requires_grad else [None, None]
    told: list[Any] = [found, [None if g is None or not g.any() else g for g in asked]]
    r = f(x)
    r[j].retain_grad()
    (g,) = grad(r[i].pow(3).sum(), x, create_graph=True)
    x.grad = None
    if g.requires_grad:
        g.square().sum().backward()
    return [*told, *(None if g is None or not g.any() else g for g in (x.grad, r[j].grad))]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ask", [by_each, twice])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_by_results(program: Program, ask: Any, backend: str) -> None:
    with observe() as seen:
        run = compile_fn(program, backend=backend)
        x = t(3, 4).requires_grad_()
        count = len(program(x))
        for i in range(count):
            for j in range(count):
                expected, found = ask(program, x, i, j), ask(run, x, i, j)
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, msg=lambda m: f"{i} by {j}: {m}")
    assert not seen.breaks
    assert not seen.kept


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_result_in_memory_that_is_written_to(backend: str) -> None:
    with observe() as seen:
        run = compile_fn(written, backend=backend)
        x = t(3, 4).requires_grad_()
        torch.testing.assert_close(by_each(run, x, 1, 0), by_each(written, x, 1, 0))
    assert not seen.kept


class Drawn(torch.autograd.Function):
    """Its gradient is random."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * torch.rand_like(grads[0])


@pytest.mark.parametrize("between", [False, True])
def test_a_backward_that_draws(between: bool) -> None:
    def f(x: torch.Tensor) -> Results:
        y = x * 3 if between else Drawn.apply(x)
        return y, ((Drawn.apply(y) if between else y) ** 2).sum()

    def told(f: Program) -> Any:
        torch.manual_seed(1)
        x = t(3, 4).requires_grad_()
        y, z = f(x)
        y.retain_grad()
        z.backward()
        return x.grad, y.grad, torch.rand(2)

    with observe() as seen:
        torch.testing.assert_close(told(compile_fn(f, backend="aot_eager")), told(f))
    assert not seen.kept


def test_derivatives_where_memory_of_a_result_is_written_to() -> None:
    with pytest.raises(JitneyError, match="writes to the memory of a result"):
        twice(compile_fn(written, backend="aot_eager"), t(3, 4).requires_grad_(), 1, 0)


def test_an_argument_that_is_written_to() -> None:
    def f(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x.mul_(weight)
        return (x**2).sum()

    def told(f: Any) -> Any:
        weight = t(3, seed=1).requires_grad_()
        x = t(3).requires_grad_() * 1
        z = f(x, weight)
        x.retain_grad()
        hooked: list[Any] = []
        x.register_hook(hooked.append)
        z.backward()
        return x.grad, weight.grad, hooked

    torch.testing.assert_close(told(compile_fn(f, backend="aot_eager")), told(f))


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 5))

    def forward(self, x: torch.Tensor) -> Results:
        features = self.body(x)
        return features, self.head(features)


@pytest.mark.parametrize("backend", BACKENDS)
def test_class_activation_maps(backend: str) -> None:
    """Features and logits of a network with convolutions, batch norms and dropout."""

    def maps(model: Any) -> list[torch.Tensor]:
        torch.manual_seed(3)
        features, logits = model(t(2, 3, 8, 8))
        (weights,) = grad(logits[:, 1].sum(), features, retain_graph=True)
        (logits.square().sum() + features.mean()).backward()
        return [weights, (weights.mean((2, 3), keepdim=True) * features).sum(1).relu()]

    sides = []
    for wrap in (lambda m: m, lambda m: compile_fn(m, backend=backend)):
        torch.manual_seed(0)
        model = Backbone()
        sides.append([maps(wrap(model)), [p.grad for p in model.parameters()]])
    torch.testing.assert_close(sides[1], sides[0], rtol=1e-4, atol=1e-5)


def test_the_usual_way_is_one_backward() -> None:
    seen: list[str] = []
    with events.listen(lambda e: seen.append(e.kind) if isinstance(e, events.AtenGraph) else None):
        run = compile_fn(pair, backend="aot_eager")
        for _ in range(2):
            y, z = run(t(3, 4).requires_grad_())
            (z + y.sum()).backward()
    assert seen.count("backward") == 1


def test_gradients_by_what_comes_in_are_one_backward() -> None:
    """As with ``backward()``, though the results live; asked by one of them, by its edge too, the backward is cut."""
    seen: list[str] = []
    with events.listen(lambda e: seen.append(e.kind) if isinstance(e, events.AtenGraph) else None):
        run, x = compile_fn(steps, backend="aot_eager"), t(3, 4).requires_grad_()
        a, b, c, z = run(x)
        eager = steps(x)
        others: list[tuple[list[Any], list[Any]]] = [
            ([x], [x]),
            ([a, x], [eager[0], x]),
            ([get_gradient_edge(b), x], [eager[1], x]),
            ([x, c.view(4, 3)[0]], [x, eager[2].view(4, 3)[0]]),
        ]
        for asked, by in others:
            found = grad(z + c.sum(), asked, retain_graph=True, allow_unused=True)
            expected = grad(eager[3] + eager[2].sum(), by, retain_graph=True, allow_unused=True)
            torch.testing.assert_close(found, expected)
            assert (seen.count("backward") == 1) is (len(asked) == 1)


def linear(x: torch.Tensor) -> Results:
    """Operators that keep none of their results, so that these may be written to."""
    a = x * 2
    b = a + x
    return a, b, (b * WEIGHT[:3] + a).sum()


def shown(x: torch.Tensor) -> Results:
    v = x.view(-1)
    return v, (v * 3).sum()


def of_an_argument(x: torch.Tensor) -> Results:
    x.mul_(3)
    return x, (x * 2).sum()


def dropped(r: list[Any], i: int) -> None:
    r[i] = None


def overwritten(r: list[Any], i: int) -> None:
    r[i].mul_(3)


def overwritten_unseen(r: list[Any], i: int) -> None:
    r[i].detach().mul_(3)


def overwritten_and_dropped(r: list[Any], i: int) -> None:
    r[i].add_(1)
    r[i] = None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("lose", [dropped, overwritten, overwritten_unseen, overwritten_and_dropped])
def test_gradients_by_the_edge_of_a_result_that_is_gone(
    lose: Callable[[list[Any], int], None], elsewhere: bool, backend: str
) -> None:
    """Also within another pass of the engine."""

    def told(f: Program, i: int) -> list[Any]:
        x = t(3, 4).requires_grad_()
        r: list[Any] = list(f(x * 1))
        edge, z = get_gradient_edge(r[i]), r[-1]
        lose(r, i)
        if not elsewhere:
            return list(grad(z, [edge, x]))
        found: list[Any] = []
        other = t(2).requires_grad_()
        probe = other * 2
        probe.register_hook(lambda g: found.extend(grad(z, [edge, x])))
        grad(probe.sum(), other)
        return found

    for program in (linear, shown, of_an_argument):
        run = compile_fn(program, backend=backend)
        for i in range(2 if program is linear else 1):
            torch.testing.assert_close(told(run, i), told(program, i))


@pytest.mark.parametrize("program", [pair, steps, lambda x: (lambda h: (h, h.sin()))((x @ WEIGHT).view(4, 3))])
def test_a_hook_on_a_result_that_nobody_keeps(program: Program) -> None:
    def told(f: Program) -> torch.Tensor | None:
        x = t(3, 4).requires_grad_()
        first, *_, last = f(x)
        first.register_hook(lambda g: g * 10)
        del first, _
        last.square().sum().backward()
        return x.grad

    torch.testing.assert_close(told(compile_fn(program, backend="aot_eager")), told(program))


@pytest.mark.parametrize("program", [pair, kept_by_operators])
def test_derivatives_where_a_hook_changes_what_arrives(program: Program) -> None:
    def told(f: Program) -> Any:
        x = t(3, 4).requires_grad_()
        first, *_, last = f(x)
        first.register_hook(lambda g: g * 3)
        (g,) = grad(last, x, create_graph=True)
        return g, grad(g.square().sum(), [x, first])

    torch.testing.assert_close(told(compile_fn(program, backend="aot_eager")), told(program))


def penalty_of_what_is_dropped(f: Program, x: torch.Tensor) -> None:
    g, = grad(f(x)[-1], x, create_graph=True)  # fmt: skip
    g.square().sum().backward()


def penalty_after_a_write(f: Program, x: torch.Tensor) -> None:
    y, z = f(x)
    y.mul_(2)
    (g,) = grad(z, x, create_graph=True)
    g.square().sum().backward()


def penalty_after_detaching(f: Program, x: torch.Tensor) -> None:
    y, z = f(x)
    y.detach_()
    (g,) = grad(z, x, create_graph=True)
    g.square().sum().backward()


@pytest.mark.parametrize("ask", [penalty_of_what_is_dropped, penalty_after_a_write, penalty_after_detaching])
def test_nobody_can_ask_for_what_is_gone(ask: Callable[[Program, torch.Tensor], None]) -> None:
    def f(x: torch.Tensor) -> Results:
        y = x * 2
        return y, (y + x**3).sum()

    xs = [t(3, 4).requires_grad_() for _ in range(2)]
    ask(f, xs[0])
    ask(compile_fn(f, backend="aot_eager"), xs[1])
    torch.testing.assert_close(xs[1].grad, xs[0].grad)


@pytest.mark.parametrize(
    "inner", [lambda z, x: grad(z, x, retain_graph=True), lambda z, x: z.backward(retain_graph=True)]
)
def test_a_backward_inside_a_backward(inner: Any) -> None:
    def told(f: Program) -> Any:
        x = t(3, 4).requires_grad_()
        y, z = f(x)
        seen: list[Any] = []

        def hook(gradient: torch.Tensor) -> None:
            if not seen:
                seen.append(0)
                seen.append(inner(z, x))

        y.register_hook(hook)
        z.backward(retain_graph=True)
        return x.grad, seen

    torch.testing.assert_close(told(compile_fn(pair, backend="aot_eager")), told(pair))


def test_backwards_of_one_run_in_several_threads() -> None:
    x = t(3, 4).requires_grad_()
    y, z = compile_fn(pair, backend="aot_eager")(x)
    expected, found = grad(pair(x)[1], x), []

    def ask() -> None:
        found.extend(grad(z, x, retain_graph=True)[0] for _ in range(50))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 150 and all(torch.equal(g, expected[0]) for g in found) and y is not None


def test_a_cut_backward_frees_what_it_is_done_with() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Results:
        h = (x @ w).tanh()
        return h, (h**2).sum()

    h, z = compile_fn(f, backend="aot_eager")(t(3, 4).requires_grad_() * 1, t(4, 4))
    h.retain_grad()
    z.backward()
    with pytest.raises(RuntimeError, match="freed"):
        h.grad_fn.kept.grad_fn.saved_tensors  # noqa: B018


def test_of_a_long_chain_of_results_few_parts_are_compiled() -> None:
    def f(x: torch.Tensor) -> Results:
        found = []
        for _ in range(30):
            x = torch.tanh(x * 1.1)
            found.append(x)
        return tuple(found)

    seen: list[str] = []
    x = t(3, 4).requires_grad_()
    with events.listen(lambda e: seen.append(e.kind) if isinstance(e, events.AtenGraph) else None):
        results = compile_fn(f, backend="aot_eager")(x)
        found = grad(results[-1].sum(), [x, *results[::10]])
    assert seen.count("backward") == 3
    results = f(x)
    torch.testing.assert_close(found, grad(results[-1].sum(), [x, *results[::10]]))


def test_a_graph_break_between() -> None:
    def f(x: torch.Tensor) -> Results:
        h = x * 2
        e = (h**2).sum()
        torch._dynamo.graph_break()
        return grad(e + 3 * h.sum(), [h, x])

    x = t(3, 4).requires_grad_()
    torch.testing.assert_close(compile_fn(f, backend="aot_eager")(x), f(x))


def test_batches_of_gradients() -> None:
    def told(f: Program) -> Any:
        y, z = f(t(3, 4).requires_grad_())
        return grad(z, y, t(5, seed=2), is_grads_batched=True)

    torch.testing.assert_close(told(compile_fn(pair, backend="aot_eager")), told(pair))


def test_a_result_that_is_written_to_afterwards() -> None:
    """What is asked for then is the gradient by the new value."""

    def told(f: Program) -> Any:
        x = t(3, 4).requires_grad_()
        y, z = f(x)
        y.mul_(3)
        y.retain_grad()
        (z + y.sum()).backward()
        return x.grad, y.grad

    def f(x: torch.Tensor) -> Results:
        y = x * 2
        return y, (y + x).sum()

    torch.testing.assert_close(told(compile_fn(f, backend="aot_eager")), told(f))


def test_results_that_are_added_to_each_other_are_freed() -> None:
    """A way from a result to itself, through Python, would never be freed."""
    run = compile_fn(views, backend="aot_eager")
    gone = []
    for _ in range(3):
        x = t(3, 4).requires_grad_()
        h, z, _ = run(x)
        h += z
        gone.append(weakref.ref(x))
        del x, h, z, _
    gc.collect()
    assert all(reference() is None for reference in gone)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("hooked", [False, True])
def test_inside_a_checkpoint(hooked: bool, create_graph: bool) -> None:
    """Its saved tensors may be read once."""

    def told(f: Program) -> Any:
        x = t(3, 4).requires_grad_()
        y, z = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
        if hooked:
            y.register_hook(lambda g: g * 2)
        return grad(z + y.sum(), x, create_graph=create_graph)

    torch.testing.assert_close(told(compile_fn(pair, backend="aot_eager")), told(pair))


OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sin": lambda a, b: a.sin(),
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "t": lambda a, b: a.t(),
    "view": lambda a, b: a.reshape(-1).view(4, 4),
    "matmul": lambda a, b: a @ b,
    "sum": lambda a, b: a.sum(0, keepdim=True).expand(4, 4),
    "row": lambda a, b: a[1:2] + b,
    "detach": lambda a, b: a.detach() * b,
    "write": lambda a, b: (a * 1).mul_(b),
}
LINES = st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9), st.integers(0, 9)), max_size=6)


@settings(max_examples=40, deadline=None)
@given(LINES, st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(0, 9), st.integers(0, 9))
def test_programs(lines: Sequence[tuple[str, int, int]], shown: list[int], i: int, j: int) -> None:
    def f(x: torch.Tensor) -> Results:
        values = [x * 1, x.cos()]
        for name, a, b in lines:
            values.append(OPERATIONS[name](values[a % len(values)], values[b % len(values)]))
        return tuple(values[at % len(values)] for at in shown)

    x = t(4, 4).double().requires_grad_()
    i, j = i % len(shown), j % len(shown)
    run = compile_fn(f, backend="aot_eager", dynamic=False)
    torch.testing.assert_close(by_each(run, x, i, j), by_each(f, x, i, j))
    if not any(name == "write" for name, *_ in lines):  # see the test of it
        torch.testing.assert_close(twice(run, x, i, j), twice(f, x, i, j))
