"""``Tensor.backward()`` in captured code: gradients arrive at leaves as in eager, or the graph breaks with a reason."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from captured.table import leaf, t
from helpers import compile_fn, observe
from torch import nn
from torch.testing import assert_close as same

import jitney
from jitney import events
from jitney.graph_compile.subgraphs import places_of

Wrap = Callable[[Any], Any]


def both(story: Callable[[Wrap], Any], backend: Any = "eager", whole: bool = True) -> None:
    """What a story tells is the same whether its functions are compiled or not."""
    wanted = story(lambda fn: fn)
    with observe() as seen:
        got = story(lambda fn: jitney.compile(fn, backend=backend, fullgraph=whole))
    same(got, wanted)
    assert not seen.kept


def broken(story: Callable[[Wrap], Any], reason: str) -> None:
    """The same, with a break for this reason."""
    wanted = story(lambda fn: fn)
    with observe() as seen:
        got = story(compile_fn)
    same(got, wanted)
    assert any(reason in found for found in seen.breaks), seen.breaks


# ------------------------------------------------------------------ where gradients arrive


def test_the_first_gradient_is_set_and_others_are_added_to_it(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w = leaf(3)
        step = wrap(lambda x: (w * x).sum().backward())
        told = []
        for n in range(4):
            step(t(3, seed=n))
            assert w.grad is not None
            told.append(w.grad.clone())
            if n == 2:
                w.grad = None
        return told

    both(story, backend)


def test_what_holds_the_gradient_sees_what_is_added(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w = leaf(3)
        w.grad = held = torch.ones(3)
        before = held._version
        wrap(lambda x: (w * x).sum().backward())(t(3))
        return held, w.grad is held, held._version - before, w.grad.requires_grad, w.grad.is_leaf

    both(story, backend)


def test_gradients_of_several_calls_in_one_frame(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w, b = leaf(3), leaf(3, seed=1)

        def fn(x: torch.Tensor) -> Any:
            for i in range(3):
                ((w * x + b) ** (i + 1)).sum().backward()
            first = w.grad.clone()
            w.grad = None
            (w**2).sum().backward()
            w.grad.mul_(3)
            b.grad.zero_()
            return first, w.grad + 1

        fn = wrap(fn)
        return [[*fn(t(3, seed=n)), w.grad.clone(), b.grad.clone()] for n in range(3)]

    both(story, backend)


def test_a_gradient_for_the_result_and_several_results(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w = leaf(3)

        def fn(x: torch.Tensor, weight: torch.Tensor) -> None:
            (w * x).backward(weight)
            (w * x).backward(gradient=weight, retain_graph=True)
            torch.autograd.backward([(w**2).sum(), w + x], [None, weight])
            torch.autograd.backward((w**3).sum())

        wrap(fn)(t(3), t(3, seed=1))
        return w.grad

    both(story, backend)


def test_only_the_inputs_that_are_named(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w, b, c = leaf(3), leaf(3, seed=1), leaf(3, seed=2)

        def fn() -> None:
            loss = (w * b).sum()
            loss.backward(inputs=[w], retain_graph=True)
            loss.backward(inputs=b)
            (w + b).sum().backward(inputs=(w, c))

        wrap(fn)()
        return w.grad, b.grad, c.grad

    both(story, backend)


def test_the_same_tensor_for_two_leaves_is_copied(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w, b, weight = leaf(3), leaf(3, seed=1), t(3, seed=2)

        def fn() -> None:
            (w + b).backward(weight)
            w.grad.mul_(2)

        wrap(fn)()
        weight.zero_()
        w.grad.add_(1)
        return w.grad, b.grad

    both(story, backend)


def test_a_view_for_a_leaf_is_a_view_in_eager_too() -> None:
    def story(wrap: Wrap) -> Any:
        w, weight = leaf(2, 3), t(6, seed=2)
        wrap(lambda: w.view(-1).backward(weight))()
        weight.zero_()
        return w.grad

    broken(story, "a gradient that is a view of something else")


@pytest.mark.parametrize("case", range(4))
def test_gradients_are_laid_out_like_their_leaves(case: int, backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w = torch.arange(24.0).reshape(1, 2, 3, 4)
        w = [w, w.contiguous(memory_format=torch.channels_last), w.permute(3, 1, 0, 2), w[..., ::2]][case]
        w = w.detach().requires_grad_()

        def fn() -> None:
            w.sum().backward()
            (w.transpose(1, 2) * torch.ones_like(w.transpose(1, 2)).contiguous()).sum().backward()

        wrap(fn)()
        assert w.grad is not None
        return w.grad, w.grad.stride(), w.grad.is_leaf

    both(story, backend)


def test_leaves_of_the_frame_itself(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        def fn(x: torch.Tensor) -> Any:
            near = x.detach().clone().requires_grad_()
            before = near.grad
            (near**2).sum().backward()
            (near**3).sum().backward()
            assert near.grad is not None
            return before, near.grad * 2, near.grad.requires_grad

        return wrap(fn)(t(3))

    both(story, backend)


def test_a_leaf_of_the_frame_leaves_it_with_its_gradient() -> None:
    def story(wrap: Wrap) -> Any:
        def fn(x: torch.Tensor) -> Any:
            layer = nn.Linear(3, 2)
            layer(x).sum().backward()
            near = x.detach().clone().requires_grad_()
            (near**2).sum().backward()
            return layer, near

        torch.manual_seed(0)
        layer, near = wrap(fn)(t(2, 3))
        return [*(p.grad for p in layer.parameters()), near.detach(), near.grad, near.is_leaf]

    both(story)


def test_an_argument_that_requires_grad(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        fn = wrap(lambda x: (x**2).sum().backward())
        found = []
        for n in range(3):
            x = leaf(3, seed=n)
            fn(x)
            found.append(x.grad)
        return found

    both(story, backend)


def test_double_backward_into_gradients(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w = leaf(3)

        def fn() -> Any:
            (w**3).sum().backward(create_graph=True)
            slope = w.grad
            w.grad = None
            (slope**2).sum().backward()
            return slope.detach()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return wrap(fn)(), w.grad

    both(story, backend)


def test_batches_of_other_sizes(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        model = nn.Linear(3, 2)
        nn.init.ones_(model.weight)
        nn.init.ones_(model.bias)

        def fn(x: torch.Tensor) -> torch.Tensor:
            model.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss.detach()

        fn = wrap(fn)
        return [[fn(t(n, 3)), *[p.grad for p in model.parameters()]] for n in (4, 2, 5, 3)]

    both(story, backend)


def test_many_parameters_are_told_apart_by_one_check() -> None:
    """Not two by two, which would be thousands of guards."""
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(12)])

    def fn(x: torch.Tensor) -> None:
        model(x).sum().backward()

    records: list[Any] = []
    with events.listen(records.append):
        compile_fn(fn)(t(1, 2))
    (source,) = [e.source for e in records if isinstance(e, events.FrameCaptured)]
    assert " is not _v" not in source


def test_an_unused_parameter_has_no_gradient(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w, b = leaf(3), leaf(3)
        optimizer = torch.optim.SGD([w, b], 0.1)

        def fn() -> None:
            optimizer.zero_grad()
            (w**2).sum().backward()
            optimizer.step()

        fn = wrap(fn)
        fn()
        fn()
        return w.detach(), b.detach(), w.grad, b.grad

    both(story, backend)


# ------------------------------------------------------------------ clearing gradients


def test_zero_grad_holds_whether_there_are_gradients_or_not() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @compile_fn
    def clear(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        return x + 1

    with observe() as seen:
        for n in range(3):
            clear(t(3))
            assert all(p.grad is None for p in model.parameters())
            if n:
                model(t(2, 3)).sum().backward()
    assert len(seen.graphs) == 1


def test_zero_grad_of_a_class_of_the_programs_own() -> None:
    class Counting(torch.optim.SGD):
        cleared = 0

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.cleared += 1
            super().zero_grad(set_to_none)

    def story(wrap: Wrap) -> Any:
        model = nn.Linear(3, 2)
        nn.init.ones_(model.weight)
        optimizer = Counting([model.weight], 0.1)

        def fn(x: torch.Tensor, to_none: bool) -> None:
            optimizer.zero_grad(to_none)
            model.zero_grad(set_to_none=to_none)
            model(x).sum().backward()

        fn = wrap(fn)
        for flag in (True, False, True):
            fn(t(2, 3), flag)
        return optimizer.cleared, model.weight.grad

    both(story)


def cleared_at(first: bool, read: bool = False) -> tuple[list[bool], Any]:
    """Was the old gradient gone when the graph ran, at each step? And the gradients after a step that raises."""
    table = nn.Embedding(4, 3)
    optimizer = torch.optim.SGD(table.parameters(), 0.1)
    found: list[bool] = []
    old: Any = None

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            found.append(old is not None and old() is None)
            return graph.forward(*args)

        return run

    @jitney.compile(backend=backend, fullgraph=True)
    def step(ids: torch.Tensor) -> Any:
        before = table.weight.grad if read else None
        if first:
            optimizer.zero_grad()
        loss = table(ids).sum()
        if not first:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), before is None

    for n in range(3):
        step(torch.tensor([n, 0]))
        assert table.weight.grad is not None
        old = weakref.ref(table.weight.grad)
    with pytest.raises(IndexError):
        step(torch.tensor([9, 9]))
    return found, table.weight.grad


def test_old_gradients_are_gone_before_new_ones_need_memory() -> None:
    assert cleared_at(first=True) == ([False, True, True, True], None)


def test_old_gradients_stay_where_something_might_raise_before_they_go() -> None:
    found, gradient = cleared_at(first=False)
    assert found == [False] * 4 and gradient is not None
    found, gradient = cleared_at(first=True, read=True)
    assert found == [False] * 4


# ------------------------------------------------------------------ a graph that has been gone through


def test_the_loss_may_leave_the_frame_but_has_no_way_back(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w = leaf(3)

        def fn(x: torch.Tensor) -> Any:
            hidden = (w * x).exp()
            loss = hidden.sum()
            loss.backward()
            return loss, hidden

        told: list[Any] = []
        for result in wrap(fn)(t(3)):
            told += [result.detach(), result.requires_grad, result.is_leaf]
            with pytest.raises(RuntimeError, match="a second time"):
                result.sum().backward()
        return told

    both(story, backend)


def test_a_second_backward_raises(backend: Any) -> None:
    def fn(w: torch.Tensor) -> None:
        loss = w.exp().sum()
        loss.backward()
        loss.backward()

    messages, gradients = [], []
    for call in (jitney.compile(fn, backend=backend), fn):
        w = leaf(3)
        with pytest.raises(RuntimeError, match="a second time") as raised:
            call(w)
        messages.append(str(raised.value))
        gradients.append(w.grad)
    assert messages[0] == messages[1]
    same(*gradients)


def test_a_graph_that_saves_nothing_may_be_gone_through_again(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w, b = leaf(3), leaf(3, seed=1)

        def fn() -> Any:
            loss = (w + b).sum()
            loss.backward()
            loss.backward()
            return loss

        loss = wrap(fn)()
        loss.backward()
        return loss.detach(), w.grad, b.grad

    both(story, backend)


def test_a_retained_graph_goes_on_outside(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w = leaf(3)

        def fn(x: torch.Tensor) -> Any:
            loss = (w * x).exp().sum()
            loss.backward(retain_graph=True)
            return loss

        loss = wrap(fn)(t(3))
        loss.backward()
        return loss.detach(), w.grad

    both(story, backend)


def test_a_parameter_that_was_written_to_meanwhile() -> None:
    def fn(w: torch.Tensor) -> None:
        loss = w.exp().mul(w).sum()
        with torch.no_grad():
            w.add_(1)
        loss.backward()

    for call in (compile_fn(fn), fn):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            call(leaf(3))


# ------------------------------------------------------------------ what is not in the graph


def test_a_loss_from_outside() -> None:
    def story(wrap: Wrap) -> Any:
        w = leaf(3)
        wrap(lambda loss: loss.backward())((w**2).sum())
        return w.grad

    broken(story, "a tensor from outside that was computed of others")


def test_a_part_of_the_way_is_outside() -> None:
    def story(wrap: Wrap) -> Any:
        w = leaf(3)
        fn = wrap(lambda h: (h * w).sum().backward())
        fn(t(3))
        fn(w.exp())
        return w.grad

    broken(story, "a tensor from outside that was computed of others")


def test_a_leaf_that_becomes_a_result() -> None:
    def story(wrap: Wrap) -> Any:
        fn = wrap(lambda x: (x**2).sum().backward())
        w = leaf(3)
        x = leaf(3, seed=1)
        fn(x)
        fn(w * 2)
        return w.grad, x.grad

    broken(story, "a tensor from outside that was computed of others")


def test_hooks_where_gradients_are_accumulated() -> None:
    def story(wrap: Wrap) -> Any:
        w, seen = leaf(3), []
        node = w.view_as(w).grad_fn.next_functions[0][0]
        node.register_hook(lambda *given: seen.append(1))
        wrap(lambda x: (w * x).sum().backward())(t(3))
        return w.grad, len(seen)

    broken(story, "somebody holds the place where gradients")


def test_hooks_on_what_is_saved() -> None:
    def story(wrap: Wrap) -> Any:
        w, fn = leaf(3), wrap(lambda w: w.exp().sum().backward())
        fn(w)
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x * 0 + 7, lambda x: x):
            fn(w)
        fn(w)
        return w.grad

    broken(story, "anomaly detection or hooks on saved tensors")


def test_anomaly_detection() -> None:
    def fn(w: torch.Tensor) -> None:
        (w * 0).sqrt().sum().backward()

    for call in (fn, compile_fn(fn)):
        call(leaf(3))
        with pytest.raises(RuntimeError, match="nan values"), pytest.warns(UserWarning):
            with torch.autograd.detect_anomaly(check_nan=True):
                call(leaf(3))


def test_sparse_gradients() -> None:
    def story(wrap: Wrap) -> Any:
        table = nn.Embedding(4, 2, sparse=True)
        nn.init.ones_(table.weight)
        wrap(lambda ids: table(ids).sum().backward())(torch.tensor([1, 1, 3]))
        return table.weight.grad.to_dense()

    broken(story, "sparse gradients")


def test_inputs_that_are_no_leaves() -> None:
    def story(wrap: Wrap) -> Any:
        w = leaf(3)

        def fn() -> Any:
            h = w * 2
            (h**2).sum().backward(inputs=[h])
            return h

        return wrap(fn)().grad, w.grad

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: the .grad of what is no leaf
        broken(story, "inputs that are no leaves")


@pytest.mark.parametrize("case", range(4))
def test_what_eager_refuses(case: int, backend: Any) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> None:
        if case == 0:
            x.sum().backward()
        elif case == 1:
            (w * 2).backward()
        elif case == 2:
            (w * 2).sum().backward(torch.ones(3))
        else:
            (w * 2).sum().backward(inputs=[])

    messages = []
    for call in (jitney.compile(fn, backend=backend), fn):
        with pytest.raises(RuntimeError) as raised:
            call(t(3), leaf(3))
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_a_failing_step_changes_nothing() -> None:
    w = leaf(3)
    w.grad = torch.ones(3)

    def fn(x: torch.Tensor) -> None:
        w.grad = None
        (w * x).sum().backward()
        raise ValueError

    with pytest.raises(ValueError):
        compile_fn(fn)(t(3))
    wanted = w.grad
    w.grad = torch.ones(3)
    with pytest.raises(ValueError):
        fn(t(3))
    same(wanted, w.grad)


def test_a_break_after_the_gradients(backend: Any) -> None:
    def story(wrap: Wrap) -> Any:
        w, seen = leaf(3), []

        def fn(x: torch.Tensor) -> Any:
            loss = (w * x).exp().sum()
            loss.backward()
            seen.append(id(loss) and bytes(w.grad.numpy()))
            with torch.no_grad():
                w.sub_(w.grad)
            return loss.detach()

        fn = wrap(fn)
        return [fn(t(3, seed=n)) for n in range(3)], w.detach(), w.grad, seen

    both(story, backend, whole=False)


def test_functions_that_write_without_counting() -> None:
    def fn(gradient: torch.Tensor) -> torch.Tensor:
        found = torch.full((), 0.0)
        torch._amp_foreach_non_finite_check_and_unscale_([gradient], found, torch.full((), 2.0))
        return gradient + 1 if found.item() else gradient - 1

    for value in (1.0, float("inf")):
        same(compile_fn(fn)(torch.tensor([value, 3.0])), fn(torch.tensor([value, 3.0])))


def test_graphs_that_go_back_stay_in_one_piece() -> None:
    places: list[Any] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        before = [n.meta["example_value"] for n in graph.graph.nodes if n.op == "placeholder"]
        places.append(places_of(graph, before))
        return graph.forward

    w = leaf(3)

    def back(x: torch.Tensor) -> torch.Tensor:
        (w * x).exp().sum().backward()
        return w.grad.sin().cos()

    def frozen(x: torch.Tensor) -> torch.Tensor:
        w.requires_grad_(False)
        y = (w * x).exp().sin()
        w.requires_grad_(True)
        return y + w.sin()

    def plain(x: torch.Tensor) -> torch.Tensor:
        return (w * x).exp().sin()

    for fn in (back, frozen, plain):
        jitney.compile(fn, backend=keep, fullgraph=True)(t(3))
    assert [len(found) for found in places] == [0, 0, 2]


def linear_step(wrap: Wrap) -> tuple[nn.Linear, Wrap]:
    """A layer, and what adds to its gradients."""
    torch.manual_seed(0)
    model = nn.Linear(3, 3)

    @wrap
    def step(x: torch.Tensor) -> None:
        model(x).square().sum().backward()

    return model, step


def test_gradients_are_no_views(backend: str) -> None:
    def story(wrap: Wrap) -> Any:
        model, step = linear_step(wrap)
        step(t(2, 3))
        views = [p.grad._is_view() for p in model.parameters()]  # type: ignore[union-attr]
        gradient: Any = model.weight.grad
        gradient.detach_()
        gradient.zero_()
        step(t(2, 3))
        gradient.add_(model.weight, alpha=0.1)
        found: list[Any] = [p.grad for p in model.parameters()]
        return views, [g.detach() for g in found], "Add" in type(gradient.grad_fn).__name__

    both(story, backend)


def test_a_module_that_changes_its_dtype_after_a_backward(backend: str) -> None:
    def story(wrap: Wrap) -> Any:
        model, step = linear_step(wrap)
        step(t(2, 3))
        model.double()
        step(t(2, 3).double())
        return [p.grad for p in model.parameters()]

    both(story, backend)


class Once(torch.autograd.Function):
    """A square whose gradient cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * g * x


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("outside", [False, True])
def test_what_is_differentiable_once_is_not_differentiated_twice(backend: str, outside: bool) -> None:
    w, v = leaf(3, 3), leaf(3, 3, seed=1)

    def forward() -> torch.Tensor:
        return Once.apply(w * v).square().sum()  # type: ignore[no-any-return]

    def step() -> None:
        (forward_ if outside else forward)().backward(create_graph=True)
        (w.grad**2).sum().backward()  # type: ignore[operator]

    forward_ = jitney.compile(forward, backend=backend)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (step if outside else jitney.compile(step, backend=backend))()


@jitney.allow_in_graph
def mul(x: torch.Tensor) -> torch.Tensor:
    """Not torch's."""
    if x.isnan().any():
        raise RuntimeError("not a number")
    return x * 2


RAISING: dict[str, tuple[Callable[[torch.Tensor], Any], torch.Tensor, torch.Tensor]] = {
    "an operator": (torch.linalg.cholesky, torch.eye(3), -torch.eye(3)),
    "indices": (lambda i: torch.ones(3)[i], torch.tensor([1]), torch.tensor([7])),
    "a function of the program": (mul, torch.ones(2), torch.tensor([1.0, float("nan")])),
}


@pytest.mark.parametrize("what", RAISING)
def test_old_gradients_stay_where_something_may_raise_after_backward(what: str, backend: str) -> None:
    raising, good, bad = RAISING[what]
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @jitney.compile(backend=backend)
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        return raising(y)

    step(t(2, 3), good)
    step(t(2, 3), good)
    with pytest.raises((RuntimeError, IndexError)):
        step(t(2, 3), bad)
    assert all(p.grad is not None for p in model.parameters())
