import json

import pytest

from jitney import events
from jitney.debug import compile_times, reset_compile_times, write_trace
from jitney.errors import InvalidOption
from jitney.torch_compat.markers import Span


@pytest.fixture(autouse=True)
def clean():
    reset_compile_times()
    yield
    reset_compile_times()


def test_phases_are_summed_and_counted_the_most_expensive_first():
    for name, seconds in (("capture", 0.25), ("backend eager", 2.0), ("capture", 0.5)):
        events.emit(events.Phase(name, "f", seconds))
    assert compile_times() == (
        "phase            calls    seconds\nbackend eager        1     2.0000\ncapture              2     0.7500"
    )


def test_nothing_compiled_is_said():
    assert compile_times() == "nothing was compiled yet"
    events.emit(events.Phase("capture", "f", 0.1))
    reset_compile_times()
    assert compile_times() == "nothing was compiled yet"


def test_a_phase_is_counted_even_if_it_raises():
    with pytest.raises(ValueError), events.phase("emit", "f"):
        raise ValueError
    assert "emit" in compile_times()


def test_times_by_frame_and_by_graph_add_up_without_counting_twice():
    for number, frame in ((7, "f"), (8, "f"), (8, "g")):
        with events.compiling(number):
            events.emit(events.Phase("capture", frame, 0.5, 0.5))
            events.emit(events.Phase("backend x", frame, 2.0, 1.0))
    assert compile_times(by="frame") == (
        "frame    seconds  of these\n"
        "f         3.0000  backend x 2.0000, capture 1.0000\n"
        "g         1.5000  backend x 1.0000, capture 0.5000"
    )
    assert [line.split()[:2] for line in compile_times("graph").splitlines()[1:]] == [
        ["7", "f"],
        ["8", "f"],
        ["8", "g"],
    ]


def test_another_way_to_sum_is_refused():
    with pytest.raises(InvalidOption, match="by='phase', 'frame' or 'graph'"):
        compile_times(by="line")


def test_a_trace_has_phases_and_spans_in_order(tmp_path):
    events.emit(events.Phase("capture", "f", 0.5, 0.5, 10.0, 1))
    spans = [Span("kernel", "0 add", 1, "forward", 11.0, 11.25, 1)]
    trace = json.loads(write_trace(tmp_path / "trace.json", spans).read_text())
    first, second = trace["traceEvents"]
    assert (first["name"], first["cat"], first["ts"], first["dur"]) == ("capture f", "compile", 0.0, 5e5)
    assert (second["name"], second["cat"], second["ts"], second["dur"]) == ("0 add", "kernel", 1e6, 2.5e5)
    assert second["args"] == {"graph": 1, "of": "forward"}


def test_a_trace_of_nothing_is_empty(tmp_path):
    assert json.loads(write_trace(tmp_path / "trace.json").read_text())["traceEvents"] == []
