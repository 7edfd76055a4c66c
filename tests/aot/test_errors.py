"""Bad input: each is a clear error that names the user's line and the phase, and leaves the user's objects alone."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import t

import jitney
from jitney import events
from jitney.backends import Backend
from jitney.errors import BackendFailed


def wrong(change: Callable[[Any], Any], kind: str) -> Backend:
    """A backend whose graphs of this kind return what ``change`` makes of the right outputs."""

    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        if request.kind != kind:
            return graph.forward
        return lambda *args: change(graph.forward(*args))

    return Backend("wrong", compile_graph, level="aten")


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    w.mul_(2)
    return (x * 3).exp() * w  # the line


CHANGES = {
    "too few": (lambda outputs: outputs[:-1], "outputs, "),
    "too many": (lambda outputs: (*outputs, outputs[0]), "outputs, "),
    "no sequence": (lambda outputs: outputs[0], "as a list or tuple"),
    "nothing": (lambda outputs: None, "as a list or tuple"),
    "dtype": (lambda outputs: (outputs[0].double(), *outputs[1:]), "torch.float64"),
    "shape": (lambda outputs: (outputs[0][:1], *outputs[1:]), r"\[1, 4\]"),
    "rank": (lambda outputs: (outputs[0][None], *outputs[1:]), r"\[1, 3, 4\]"),
    "no tensor": (lambda outputs: (1.0, *outputs[1:]), "is a float"),
}


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("kind", ["inference", "forward", "backward"])
@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES.keys())
def test_wrong_outputs(change: Any, message: str, kind: str, verify: bool) -> None:
    x, w = t(3, 4, requires_grad=kind != "inference"), t(3, 4)
    with jitney.config.patch(verify=verify):
        run = jitney.compile(f, backend=wrong(change, kind))
        with pytest.raises(BackendFailed, match=message) as raised:
            out = run(x, w)
            assert kind == "backward"
            out.sum().backward()
    text = str(raised.value)
    assert "test_errors.py" in text and "in f" in text and "backend wrong" in text and f"{kind} graph" in text
    assert x.grad is None
    if kind != "backward":
        assert torch.equal(w, t(3, 4)), "a graph that failed wrote to its arguments"


@pytest.mark.parametrize("kind", ["inference", "forward", "backward"])
@pytest.mark.parametrize("result", ["raise", "nothing"])
def test_a_backend_that_does_not_compile(kind: str, result: str) -> None:
    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        if request.kind != kind:
            return graph.forward
        if result == "raise":
            raise ValueError("no such instruction")
        return None

    x, w = t(3, 4, requires_grad=kind != "inference"), t(3, 4)
    run = jitney.compile(f, backend=Backend("broken", compile_graph, level="aten"))
    with pytest.raises(BackendFailed) as raised:
        out = run(x, w)
        assert kind == "backward"
        out.sum().backward()
    text = str(raised.value)
    assert f"while compiling the {kind} graph of f" in text and "backend broken" in text
    assert "test_errors.py" in text and "in f" in text
    assert ("no such instruction" in text) == (result == "raise")
    assert x.grad is None
    if kind != "backward":
        assert torch.equal(w, t(3, 4))


def test_a_backward_that_failed_to_compile_may_be_tried_again() -> None:
    attempts = []

    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        if request.kind == "backward":
            attempts.append(1)
            if len(attempts) == 1:
                raise ValueError("out of registers")
        return graph.forward

    x = t(3, 4, requires_grad=True)
    run = jitney.compile(lambda x: x.sin(), backend=Backend("shy", compile_graph, level="aten"))
    out = run(x).sum()
    with pytest.raises(BackendFailed, match="out of registers"):
        out.backward(retain_graph=True)
    out.backward()
    assert torch.equal(x.grad, x.detach().cos())


def test_tangents_of_the_wrong_shape() -> None:
    x = t(3, 4, requires_grad=True)
    for run in (lambda x: x.sin(), jitney.compile(lambda x: x.sin(), backend="aot_eager")):
        with pytest.raises(RuntimeError, match="[Mm]ismatch in shape"):
            run(x).backward(torch.ones(4, 3))
        with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar"):
            run(x).backward()
    assert x.grad is None


def test_tangents_of_another_dtype_are_cast_as_in_eager() -> None:
    gradients = []
    for run in (lambda x: x.sin(), jitney.compile(lambda x: x.sin(), backend="aot_eager")):
        x = t(3, 4, requires_grad=True)
        run(x).backward(torch.ones(3, 4, dtype=torch.float64))
        gradients.append(x.grad)
    assert gradients[0].dtype == gradients[1].dtype and torch.equal(*gradients)


def test_a_backend_that_changes_the_graph_it_was_given_for_the_forward() -> None:
    """The backward is compiled later: it must not be made of what the backend changed."""

    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        run = type(graph)(graph, graph.graph).forward if False else graph.forward
        if request.kind == "forward":
            for node in graph.graph.nodes:
                node.meta.clear()
        return run

    x = t(3, 4, requires_grad=True)
    out = jitney.compile(lambda x: (x.sin(), x.exp())[0], backend=Backend("rude", compile_graph, level="aten"))(x)
    out.sum().backward()
    assert torch.equal(x.grad, x.detach().cos())


def test_what_is_kept_and_why_is_told() -> None:
    found: list[Any] = []
    with events.listen(lambda e: found.append(e) if isinstance(e, events.GraphKept) else None):
        jitney.compile(lambda x: torch.ones(3, requires_grad=True) * x, backend="aot_eager")(t(3))
    assert len(found) == 1 and found[0].filename == __file__ and "requires grad" in found[0].reason


class Unfit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise ValueError("no gradient today")


def test_what_the_programs_own_backward_raises_is_raised_there() -> None:
    x = t(3, requires_grad=True)
    y = jitney.compile(lambda x: Unfit.apply(x.sin()) + 1, backend="aot_eager")(x)
    assert torch.equal(y, x.sin() * 2 + 1)
    with pytest.raises(ValueError, match="no gradient today"):
        y.sum().backward()


def test_tracebacks_show_the_wrapper() -> None:
    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        def run(*args: Any) -> Any:
            raise ZeroDivisionError("at run time")

        return run

    with pytest.raises(BackendFailed) as raised:
        run = jitney.compile(lambda x, y: x * y, backend=Backend("late", compile_graph, level="aten"), fullgraph=True)
        run(t(3), t(3))
    assert type(raised.value.__cause__) is ZeroDivisionError
    assert "r = _forward(a0, a1)" in "".join(traceback.format_exception(raised.value))


def custom_operators() -> tuple[Any, Any]:
    @torch.library.custom_op("jitney_tests::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    cube.register_autograd(
        lambda ctx, g: g * ctx.saved_tensors[0] * 7,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )

    @torch.library.custom_op("jitney_tests::double_", mutates_args={"x"})
    def double_(x: torch.Tensor) -> None:
        x.mul_(2)

    return cube, double_


def test_custom_operators() -> None:
    from aot.sides import same

    cube, double_ = custom_operators()
    same(lambda x: cube(x.sin()) * 2, lambda: (t(3, 4, requires_grad=True),))

    def g(x: torch.Tensor) -> torch.Tensor:
        y = x * 3
        double_(y)
        return y

    same(g, lambda: (t(3, 4),), kept="alias annotations")


def test_operators_that_need_data_break_the_graph() -> None:
    from aot.sides import same

    def g(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y[y > 0] + y.sum().item()

    same(g, lambda: (t(3, 4, requires_grad=True),), kept=..., breaks=None)


@pytest.mark.parametrize("trains", [False, True])
def test_a_compiled_graph_that_fails_before_it_writes_runs_as_captured(trains: bool) -> None:
    def fail(outputs: Any) -> Any:
        raise ValueError("no such instruction")

    kind = "forward" if trains else "inference"
    run = jitney.compile(f, backend=wrong(fail, kind))
    for _ in range(2):
        x, w, other = t(3, 4, requires_grad=trains), t(3, 4), t(3, 4)
        with pytest.warns(UserWarning, match=rf"(?s)in f.*the compiled {kind} graph of f raised ValueError"):
            out = run(x, w)
        assert torch.equal(out, f(x, other)) and torch.equal(w, other)


def writes_first(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    taken = x[i]
    x.mul_(2)
    return taken


@pytest.mark.parametrize("trains", [False, True])
def test_a_failing_graph_has_written_what_eager_has(trains: bool) -> None:
    def call(fn: Callable[..., Any]) -> tuple[str, torch.Tensor]:
        x = t(3, 4, requires_grad=trains).clone()
        with pytest.raises(IndexError) as raised:
            fn(x, torch.tensor([1, 3]))
        assert raised.value.__context__ is None or raised.value.__suppress_context__
        return str(raised.value), x.detach()

    run = jitney.compile(writes_first, backend="aot_eager")
    for _ in range(2):
        (wanted, x), (got, y) = call(writes_first), call(run)
        assert got == wanted and torch.equal(x, y)
    wanted_taken = writes_first(t(3, 4), torch.tensor([1, 2]))
    assert torch.equal(run(t(3, 4), torch.tensor([1, 2])), wanted_taken)


def test_a_graph_that_also_updates_statistics_is_not_run_twice() -> None:
    def fn(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.batch_norm(x, mean, var, training=True)
        x.mul_(2)
        return y[i]

    def call(fn: Callable[..., Any]) -> torch.Tensor:
        mean = torch.zeros(4)
        with pytest.raises(IndexError):
            fn(t(3, 4), mean, torch.ones(4), torch.tensor([3]))
        return mean

    torch.testing.assert_close(call(jitney.compile(fn, backend="aot_eager")), call(fn))
