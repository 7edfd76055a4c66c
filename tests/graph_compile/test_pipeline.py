"""The steps of compiling: how they begin and end, and what an error of each says."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from helpers import t

import jitney
from jitney import events
from jitney.backends import Backend
from jitney.capture.interpreter.opcodes import HANDLERS
from jitney.config import config
from jitney.errors import AotError, BackendFailed, CaptureError
from jitney.graph_compile import pipeline


def inner(x: torch.Tensor) -> Any:
    return x.sin()


def outer(x: torch.Tensor) -> Any:
    return inner(x) + 1


def refusing(graph: Any, inputs: Any, request: Any) -> Any:
    raise ZeroDivisionError("while compiling")


def line(fn: Any) -> str:
    return f"{__file__}:{fn.__code__.co_firstlineno + 1}, in {fn.__name__}: "


def broken(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("a bug")


def test_the_steps_of_a_training_graph() -> None:
    told: list[Any] = []
    with events.listen(lambda event: told.append(event) if isinstance(event, events.Step) else None):
        x = t(2, requires_grad=True)
        jitney.compile(inner, backend="aot_eager")(x).sum().backward()
    assert [(step.number, step.name, step.seconds is None) for step in told] == [
        (1, "capture", True),
        (1, "capture", False),
        (2, "aot", True),
        (3, "backend aot_eager, forward", True),
        (3, "backend aot_eager, forward", False),
        (2, "aot", False),
        (3, "backend aot_eager, backward", True),
        (3, "backend aot_eager, backward", False),
    ]


def test_a_backend_that_fails_says_phase_lines_reason_and_commands() -> None:
    with pytest.raises(BackendFailed) as raised:
        jitney.compile(outer, backend=Backend("bad", refusing, level="aten"))(t())
    assert str(raised.value) == (
        line(inner) + "return x.sin()\n"
        "backend bad, inference: raised ZeroDivisionError: while compiling (while compiling the inference graph of "
        "outer)\n"
        "try: backend='eager', to see whether the program runs without it\n"
        "minify: JITNEY_REPRO_AFTER=aot python ..., the same program again; then jitney minify "
        "jitney_compile_debug/minifier_launcher.py\n"
        "from user code:\n"
        "  " + line(outer) + "return inner(x) + 1\n"
        "  " + line(inner) + "return x.sin()"
    )


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_with_suppress_errors_its_graph_runs_as_it_is(level: Any) -> None:
    run = jitney.compile(outer, backend=Backend("bad", refusing, level=level))
    told: list[Any] = []
    with config.patch(suppress_errors=True), events.listen(told.append):
        with pytest.warns(UserWarning, match="(?s)backend bad.*while compiling.*operator by operator"):
            x = t(3, requires_grad=True)
            out = run(x)
        if level == "aten":
            with pytest.warns(UserWarning, match="(?s)backend bad, backward.*while compiling"):
                out.sum().backward()
        else:
            out.sum().backward()
        assert torch.equal(run(x), outer(x)) and torch.allclose(x.grad, x.detach().cos())
    assert [event.backend for event in told if isinstance(event, events.GraphKept)] == ["bad"] * (1 + (level == "aten"))


def test_a_bug_in_aot_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "compile_graph", broken)
    run = jitney.compile(outer, backend="aot_eager")
    with pytest.raises(AotError) as raised:
        run(t())
    text = str(raised.value)
    assert text.startswith(line(inner) + "return x.sin()\naot: a bug of jitney's while splitting the graph of outer: ")
    assert "KeyError: 'a bug'" in text and "minify: JITNEY_REPRO_AFTER=capture" in text
    with config.patch(suppress_errors=True), pytest.warns(UserWarning, match="runs as captured"):
        assert torch.equal(run(t()), outer(t()))


def test_a_bug_in_capture_has_the_users_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, "BINARY_OP", broken)
    run = jitney.compile(outer, backend="eager")
    with pytest.raises(CaptureError) as raised:
        run(t())
    text = str(raised.value)
    assert text.startswith(line(outer) + "return inner(x) + 1\ncapture: a bug of jitney's while capturing outer")
    assert "\nrecord: JITNEY_REPLAY_RECORD_ENABLED=1 python ..., the same program again; then jitney replay" in text
    with config.patch(suppress_errors=True), pytest.warns(UserWarning, match="(?s)a bug of jitney's.*runs eagerly"):
        assert torch.equal(run(t()), outer(t()))


def test_verbose_shows_the_traceback_of_the_cause() -> None:
    shown = {}
    for verbose in (False, True):
        with config.patch(suppress_errors=True, verbose=verbose), warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            jitney.compile(outer, backend=Backend("bad", refusing))(t())
        shown[verbose] = str(found[0].message)
    assert "in refusing" not in shown[False]
    assert 'raise ZeroDivisionError("while compiling")' in shown[True]


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return outer(x).cos()


net = Net()


def step(x: torch.Tensor) -> Any:
    return net(x) * 2


@pytest.mark.parametrize(
    ("name", "captured"),
    [("inner", ["inner"]), ("forward", ["forward"]), ("Net.forward", ["forward"]), ("step", ["step"]), ("none", [])],
)
def test_only_the_function_asked_for_is_compiled(name: str, captured: list[str]) -> None:
    told: list[Any] = []
    with config.patch(debug_function=name), events.listen(told.append):
        run = jitney.compile(step, backend="eager")
        for _ in range(2):
            assert torch.equal(run(t()), step(t()))
    assert [event.name for event in told if isinstance(event, events.FrameCaptured)] == captured
