"""Markers are in code that is compiled while they are wanted, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney
from jitney import config, events
from jitney.torch_compat import markers

F = torch.nn.functional


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.gelu(x @ w)
    print(end="")
    return y.softmax(-1).sort().values.sum()


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)


def sources(call: Callable[[], Any]) -> list[str]:
    """All code that compiling a call generates."""
    found: list[str] = []

    def collect(event: events.Event) -> None:
        if isinstance(event, events.FrameCaptured):
            found.append(event.source)
        if isinstance(event, events.Artefact) and event.name == "output_code":
            found.append(re.sub(r"\bat\d+", "at", event.text))  # places that are computed are counted on

    with events.listen(collect), events.details(), config.patch(cache=False):
        call()
    return found


def test_code_has_no_markers_unless_they_are_wanted() -> None:
    def call() -> None:
        jitney.compile(program, backend="llvm_cpu")(*arguments()).backward()

    plain = sources(call)
    with config.patch(profiler_markers=True):
        with_markers = sources(call)
    assert plain == sources(call)  # nothing is left behind
    assert not any("_entered" in text or "with _c" in text for text in plain)
    assert sum("_entered()" in text for text in with_markers) == 2
    assert sum("with _c" in text for text in with_markers) == 4


def test_results_are_the_same_with_markers() -> None:
    results = []
    for wanted in (False, True):
        x, w = arguments()
        with config.patch(profiler_markers=wanted, cache=False):
            y = jitney.compile(program, backend="llvm_cpu")(x, w)
            y.backward()
        results.append((y.detach(), w.grad))
    (y, grad), (marked, marked_grad) = results
    assert torch.equal(y, marked) and grad is not None and marked_grad is not None and torch.equal(grad, marked_grad)


def test_spans_nest_and_say_what_ran() -> None:
    with markers.collecting() as spans:
        compiled = jitney.compile(program, backend="llvm_cpu")
        compiled(*arguments()).backward()
        spans.clear()
        compiled(*arguments()).backward()
    kinds = [span.kind for span in sorted(spans, key=lambda span: (span.begin, -span.end))]
    assert kinds[:5] == ["frame", "run", "graph", "extern", "kernel"] and kinds.count("graph") == 4
    graphs = [span for span in spans if span.kind == "graph"]
    for span in spans:
        if span.kind in ("kernel", "extern"):
            (outer,) = [g for g in graphs if g.begin <= span.begin and span.end <= g.end]
            assert (outer.number, outer.detail) == (span.number, span.detail)
    assert {g.name.partition(" (")[0] for g in graphs} == {"forward of program", "backward of program"}


def test_torchs_profiler_shows_the_names() -> None:
    with torch.profiler.profile() as prof:  # running when it is compiled: that is enough
        jitney.compile(program, backend="llvm_cpu")(*arguments())
    names = {event.key for event in prof.key_averages()}
    assert {"jitney run: program", "jitney graph: forward of program (llvm_cpu)", "jitney kernel: 1 gelu"} <= names


def test_graphs_of_any_backend_are_marked() -> None:
    with markers.collecting() as spans:
        jitney.compile(program, backend=lambda graph, inputs: graph.forward)(*arguments())
    assert [s.name for s in spans if s.kind == "graph"] == ["forward of program (<lambda>)"] * 2


def test_a_span_ends_where_a_graph_raises() -> None:
    def fails(*inputs: Any) -> Any:
        raise ValueError("no")

    with markers.collecting() as spans:
        run = markers.marked(fails, "graph", "it")
        with pytest.raises(ValueError, match="no"):
            run(1)
    assert [span.name for span in spans] == ["it"]
    assert markers.marked(fails, "graph", "it") is fails


def test_a_boxed_form_is_marked_too() -> None:
    def run(*inputs: Any) -> list[Any]:
        return list(inputs)

    def boxed(inputs: list[Any]) -> list[Any]:
        return [*inputs, inputs.clear()][:-1]

    run.boxed = boxed  # type: ignore[attr-defined]
    with markers.collecting() as spans:
        marked: Any = markers.marked(run, "graph", "it")
        values = [1, 2]
        assert marked.boxed(values) == [1, 2] and not values and marked(3) == [3]
    assert len(spans) == 2


@pytest.mark.parametrize(("recorded", "waits"), [(False, 2), (True, 0)])
def test_who_measures_waits_for_the_device_unless_it_records(
    recorded: bool, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[None] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: recorded)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(None))
    marker = markers.Marker("kernel", "it")
    with markers.collecting(), marker():
        pass
    assert len(waited) == waits
    with marker():  # a profile of torch's alone: its own clock is on the device
        pass
    assert len(waited) == waits
