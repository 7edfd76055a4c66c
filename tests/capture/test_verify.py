"""``config.verify``: what each representation checks of itself, each shown a broken one."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from helpers import CountingBackend, t

import jitney
from jitney.capture.codegen.emit import Emitted
from jitney.capture.convert import Captured
from jitney.capture.interpreter.resume import EMPTY, VALUE, Layout
from jitney.errors import CaptureError, GuardError
from jitney.guards import Guard, Pool, Program, Source
from jitney.guards.checks import CHECKS


def fn(x: torch.Tensor, n: int) -> torch.Tensor:
    y = x + n
    return y * 2


def captured() -> Captured:
    backend = CountingBackend()
    jitney.compile(fn, backend=backend)(t(), 2)
    graph = backend.graphs[0]
    return Captured(Emitted("", {}, graph, [t()], 1, []), None, 0.0, ())


def test_captured_graph_as_it_is() -> None:
    captured().verify()


def test_node_without_example_value_is_found() -> None:
    broken = captured()
    assert broken.emitted.graph is not None
    del next(iter(broken.emitted.graph.graph.nodes)).meta["example_value"]
    with pytest.raises(CaptureError, match="has no example value"):
        broken.verify()


def test_other_number_of_outputs_is_found() -> None:
    broken = captured()
    broken.emitted.outputs = 2
    with pytest.raises(CaptureError, match="another number of inputs or outputs"):
        broken.verify()


@pytest.mark.parametrize(
    "layout, message",
    [
        (Layout((), ("x", "n"), (VALUE,)), "1 values on the stack, the code 0"),
        (Layout((), ("x", "unknown"), ()), "names that the code has not"),
        (Layout(("x",), (), ()), "names that the code has not"),
        (Layout((), ("x", "x"), ()), "or twice"),
        (Layout((), (), (EMPTY, VALUE)), "2 values on the stack"),
    ],
)
def test_layout_that_does_not_fit_the_code(layout: Layout, message: str) -> None:
    Layout((), ("x", "n"), ()).verify(fn.__code__, 1)
    with pytest.raises(CaptureError, match=message):
        layout.verify(fn.__code__, 1)


def test_sources_are_trees_that_hold_all_guards() -> None:
    root = Source(None, "local", "x")
    guard = Guard(root.attr("training"), "is", True)
    guard.source.guards.append(guard)
    program = Program(Pool())
    program.verify([root], [guard])
    with pytest.raises(GuardError, match="twice"):
        program.verify([root, root], [guard])
    with pytest.raises(GuardError, match="twice"):
        program.verify([root, Source(None, "local", "x")], [guard])
    with pytest.raises(GuardError, match="no argument leads to"):
        program.verify([root], [Guard(Source(None, "local", "y"), "is", True)])
    root.children["elsewhere"] = Source(None, "attr", "stray")
    with pytest.raises(GuardError, match="not where it belongs"):
        program.verify([root], [guard])


def test_guard_that_does_not_hold_on_its_own_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS, "equals", "{} is MISS".format)  # no Python function: that would be the program's
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # an earlier test's progress bar may have left a thread
    with jitney.config.patch(verify=True), pytest.raises(GuardError, match="does not hold on the values"):
        jitney.compile(fn, backend="eager")(t(), 2)
    with jitney.config.patch(verify=False):
        assert torch.equal(jitney.compile(fn, backend="eager")(t(), 2), fn(t(), 2))


COUNT = 0


def test_a_thread_that_changes_what_was_just_guarded_costs_one_call() -> None:
    """Not the frame: the next call captures it again."""
    global COUNT
    COUNT = 1
    done = threading.Event()
    waiting = threading.Thread(target=done.wait)
    compiled_graphs: list[Any] = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        return x + COUNT

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        global COUNT
        if not compiled_graphs:
            COUNT += 1  # as another thread would meanwhile
        compiled_graphs.append(graph)
        return graph.forward

    waiting.start()
    try:
        compiled = jitney.compile(counted, backend=backend)
        for _ in range(3):
            assert torch.equal(compiled(t()), t() + 2)
    finally:
        done.set()
        waiting.join()
    assert len(compiled_graphs) == 2
