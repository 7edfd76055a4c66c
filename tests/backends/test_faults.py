"""Graphs that raise when they run: the program's own errors stay its own, a backend's are said to be the backend's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import t

import jitney
from jitney import events
from jitney.backends import Backend
from jitney.backends.faults import raises_too
from jitney.capture.codegen import emit
from jitney.errors import BackendFailed
from jitney.torch_compat import torch_private
from jitney.torch_compat.rng_state import RandomStates

LEVELS = ("torch", "aten")
AFTER = {"torch": "capture", "aten": "aot"}


def failing(level: Any, error: Callable[[], Exception] = lambda: ZeroDivisionError("at run time")) -> Any:
    """A backend whose graphs raise when they run."""

    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        def run(*args: Any) -> Any:
            raise error()

        for node in graph.graph.nodes:  # a backend may change the graph that it was given
            if node.op == "call_function":
                node.target = pow
        graph.recompile()
        return run

    return Backend("late", compile_graph, level=level)


def line_of(fn: Any, offset: int) -> str:
    return f"{__file__}:{fn.__code__.co_firstlineno + offset}, in {fn.__name__}: "


@pytest.mark.parametrize("level", LEVELS)
def test_a_backend_that_fails_is_named_in_one_warning_and_the_frame_runs_eagerly(level: Any) -> None:
    def fn(x: torch.Tensor, log: list[Any]) -> Any:
        log.append(1)
        y = x.sin() + 1
        return y

    run, log, told = jitney.compile(fn, backend=failing(level)), [], []
    with warnings.catch_warnings(record=True) as found, events.listen(told.append):
        warnings.simplefilter("always")
        for _ in range(3):
            assert torch.equal(run(t(), log), t().sin() + 1)
    assert log == [1, 1, 1]
    (warned,) = found
    assert warned.filename == __file__
    assert str(warned.message) == (
        line_of(fn, 2) + "y = x.sin() + 1\n"
        "backend late: the compiled forward graph of fn raised ZeroDivisionError: at run time; "
        "the captured one does not\n"
        "try: backend='eager', to see whether the program runs without it\n"
        f"minify: JITNEY_REPRO_AFTER={AFTER[level]} python ..., the same program again; then jitney minify "
        "jitney_compile_debug/minifier_launcher.py\n"
        "(calls for which it raises run eagerly)"
    )
    assert sum(isinstance(event, events.FrameSkipped) for event in told) == 3


@pytest.mark.parametrize("level", LEVELS)
def test_under_fullgraph_it_is_an_error(level: Any) -> None:
    def fn(x: torch.Tensor, log: list[Any]) -> Any:
        log.append(1)
        return x.sin() + 1

    log: list[Any] = []
    with pytest.raises(BackendFailed) as raised:
        jitney.compile(fn, backend=failing(level), fullgraph=True)(t(), log)
    assert str(raised.value).startswith(line_of(fn, 2) + "return x.sin() + 1\nbackend late: the compiled ")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert log == []


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", failing("torch", error=lambda: KeyError("mine"))])
def test_what_the_program_raises_is_its_own(backend: Any, fullgraph: bool) -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> Any:
        return x[i] * 2

    def caught(x: torch.Tensor, i: torch.Tensor) -> Any:
        try:
            return x[i] * 2
        except IndexError:
            return x

    far = torch.tensor([7])
    with pytest.raises(IndexError):
        jitney.compile(fn, backend=backend, fullgraph=fullgraph)(t(), far)
    run = jitney.compile(caught, backend=backend, fullgraph=fullgraph)
    for _ in range(2):
        assert torch.equal(run(t(), far), t())


@pytest.mark.parametrize("level", LEVELS)
def test_random_numbers_are_eagers_after_a_backend_failed(level: Any) -> None:
    def fn(x: torch.Tensor) -> Any:
        return torch.nn.functional.dropout(x + 1)

    results = []
    for run in (fn, jitney.compile(fn, backend=failing(level))):
        torch.manual_seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results += [run(torch.ones(64)), torch.rand(3)]
    assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[3])


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_backward_that_fails_is_the_backends(fullgraph: bool) -> None:
    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        def run(*args: Any) -> Any:
            raise ZeroDivisionError("at run time")

        return run if request.kind == "backward" else graph.forward

    def fn(x: torch.Tensor) -> Any:
        return x.sin()

    x = t(3, requires_grad=True)
    out = jitney.compile(fn, backend=Backend("late", compile_graph, level="aten"), fullgraph=fullgraph)(x)
    with pytest.raises(BackendFailed) as raised:
        out.sum().backward()
    assert str(raised.value) == (
        line_of(fn, 1) + "return x.sin()\n"
        "backend late: the compiled backward graph of fn raised ZeroDivisionError: at run time; the captured one does "
        "not\ntry: backend='eager', to see whether the program runs without it\n"
        "minify: JITNEY_REPRO_AFTER=aot python ..., the same program again; then jitney minify "
        "jitney_compile_debug/minifier_launcher.py"
    )
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert x.grad is None


def picky() -> Any:
    """An operator whose gradient refuses negative tangents when it runs."""

    @torch.library.custom_op("jitney_tests::refusing", mutates_args=())
    def refusing(g: torch.Tensor) -> torch.Tensor:
        if (g < 0).any():
            raise ValueError("negative")
        return g * 2

    @torch.library.custom_op("jitney_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    refusing.register_fake(torch.empty_like)
    doubled.register_fake(torch.empty_like)
    doubled.register_autograd(lambda ctx, g: refusing(g), setup_context=lambda ctx, inputs, output: None)
    return doubled


def test_what_a_backward_raises_in_eager_too_is_not_the_backends() -> None:
    doubled = picky()
    x = t(3, requires_grad=True)
    for run in (lambda x: doubled(x).sin(), jitney.compile(lambda x: doubled(x).sin(), backend="aot_eager")):
        with pytest.raises(ValueError, match="negative"):
            run(x).backward(-torch.ones(3) * x.detach().mul(2).cos().sign())
    run(x).backward(x.detach().mul(2).cos().sign())
    assert torch.equal(x.grad, 2 * x.detach().mul(2).cos().abs())


def test_asking_leaves_no_traces() -> None:
    def graph(x: torch.Tensor) -> Any:
        torch.rand(3)
        torch.set_grad_enabled(False)
        if x.sum() > 0:
            raise ValueError("positive")
        return (x,)

    before = torch.get_rng_state()
    assert raises_too(graph, (torch.ones(2),)) and not raises_too(graph, (-torch.ones(2),))
    assert torch.is_grad_enabled() and torch.equal(torch.get_rng_state(), before)


def test_asking_shows_no_warning_again() -> None:
    def graph(x: torch.Tensor) -> Any:
        warnings.warn("shown", stacklevel=1)
        raise ValueError

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert raises_too(graph, (t(),))
        assert not shown
        warnings.warn("later", stacklevel=1)
    assert [str(one.message) for one in shown] == ["later"]
    with pytest.raises(UserWarning):  # an error under the tests' filters, not one that is not shown
        graph(t())


def test_operation_warns_as_often_as_in_eager_where_the_call_ends_in_an_error() -> None:
    def fn(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return (x + torch.std(x[:1], 0))[at]

    compiled = jitney.compile(fn, backend="llvm_cpu")  # whose kernels warn of nothing
    counts = []
    for called in (fn, compiled, compiled):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            with pytest.raises(IndexError):
                called(t(), torch.tensor([50]))
        counts.append(len(shown))
    assert counts == [1, 1, 1]


def drawing(x: torch.Tensor, at: torch.Tensor) -> Any:
    return torch.nn.functional.dropout(x, 0.5) + torch.rand(4), x[at]


def later(graph: Any, inputs: Any, request: Any) -> Any:
    """Compiles to what raises when everything is done."""

    def run(*args: Any) -> Any:
        graph(*args)
        raise ZeroDivisionError("late")

    return run


@pytest.mark.parametrize("backend", [*(Backend("late", later, level=level) for level in LEVELS), "eager", "llvm_cpu"])
def test_what_runs_again_draws_the_same_numbers(backend: Any) -> None:
    run, x = jitney.compile(drawing, backend=backend), torch.ones(4, requires_grad=True)
    for at in (torch.tensor([1]), torch.tensor([7]), torch.tensor([2])):
        sides = []
        for fn in (drawing, run):
            torch.manual_seed(0)
            torch.rand(2)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", r"(?s).*the compiled forward graph of drawing raised ZeroDivision")
                try:
                    result = fn(x, at)[0].detach()
                except IndexError:
                    result = torch.zeros(())
            sides.append((result, torch.rand(2)))
        assert all(map(torch.equal, *sides)), at


def test_generators_are_read_for_graphs_that_draw_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[str]] = []

    class Noted(RandomStates):
        def __init__(self, devices: Any) -> None:
            read.append(list(devices))
            super().__init__(devices)

    monkeypatch.setattr(emit, "RandomStates", Noted)

    def attention(q: torch.Tensor, p: float) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=p)

    q = torch.ones(1, 1, 4, 8)
    jitney.compile(lambda x: x.sin(), backend="eager")(q)
    jitney.compile(lambda x: torch.nn.functional.dropout(x, 0.5, False), backend="eager")(q)
    jitney.compile(lambda q: attention(q, 0.0), backend="eager")(q)
    assert not read
    jitney.compile(lambda q: attention(q, 0.5), backend="eager")(q)
    jitney.compile(lambda q: torch.bernoulli(q), backend="eager")(q)
    assert read == [["cpu"], ["cpu"]]


def test_generators_of_devices_without_any() -> None:
    states = RandomStates(["meta", "cpu"])
    expected = torch.rand(3)
    assert states.changed()
    states.failed(ValueError())
    assert not states.changed() and torch.equal(torch.rand(3), expected)
    states.failed(torch_private.STOPS_RECOMPUTATION())
    assert states.changed()
