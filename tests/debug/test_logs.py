import io
import logging
import os
import sys
from pathlib import Path

import pytest
import torch
from fork_server import run_python

from jitney import events
from jitney.debug import set_logs
from jitney.debug.logs import ARTEFACTS
from jitney.errors import InvalidOption

sys.path.insert(0, str(Path(__file__).parent))
from samples import LIMIT, RECOMPILED, SCHEDULED, SKIPPED, captured  # noqa: E402

EVERYTHING = [
    captured(),
    SKIPPED,
    RECOMPILED,
    events.Phase("capture", "step", 0.5, 0.25),
    events.Step(2, "aot", "step"),
    events.Step(2, "aot", "step", 0.5),
    events.Step(3, "backend eager", "step", 0.5, "BackendFailed"),
    events.AtenGraph("forward", "step", "aot_eager", torch.fx.symbolic_trace(lambda x: x).graph),
    SCHEDULED,
    LIMIT,
    events.Artefact("output_code", "step", "eager", "generated text"),
    events.FrameStored("step", "model.py", 4, "the order of a set"),
]


@pytest.fixture
def log():
    """``log(spec)`` is what the events write under it."""

    def collect(spec="", **artefacts):
        stream = io.StringIO()
        set_logs(spec, stream=stream, **artefacts)
        for event in EVERYTHING:
            events.emit(event)
        return stream.getvalue()

    yield collect
    set_logs()


SHOWN = {
    "capture": "captured step (model.py:4): 3 ops, 0.250 s",
    "steps": "Step 2: aot of step begins\n[jitney.steps] Step 2: aot of step ends, 0.500 s\n"
    "[jitney.steps] Step 3: backend eager of step fails with BackendFailed, 0.500 s\n",
    "bytecode": "def step(x):",
    "graph": "call_function[target=torch.sin]",
    "graph_code": "def forward(self, x):",
    "graph_breaks": 'graph break at model.py:5, in step: print("woo")',
    "aot_graphs": "forward graph of step for aot_eager:",
    "guards": "L['x'] is a float32 tensor of shape (2,)",
    "recompiles": "L['n'] == 3, found 4",
    "cache": "step (model.py:4) is not kept: the order of a set",
    "fusion": "0. kernel: mul, sum; reads 4.1 kB, writes 16 B from model.py:5",
    "perf_hints": 'in step: print("woo"): a graph ends here, nothing fuses across: print() writes to a file',
    "output_code": "generated text",
    "timing": "capture of step: 0.5000 s",
}


@pytest.mark.parametrize("name", ARTEFACTS)
def test_each_artefact_shows_its_own_and_no_other(log, name):
    written = log(name)
    assert SHOWN[name] in written
    assert {line.split("]")[0] for line in written.splitlines() if line.startswith("[jitney")} == {f"[jitney.{name}"}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("capture", "operations of step"),
        ("guards", "checked by:\ndef step(x):"),
        ("graph_breaks", "main.py:2, in main: step(x)"),
        ("fusion", "loops before fusion:\nbefore\nafter:\nafter"),
        ("bytecode", "RETURN_VALUE"),
        ("timing", "capture of step by itself: 0.2500 s"),
    ],
)
def test_a_plus_shows_more(log, name, more):
    assert more not in log(name)
    assert more in log(f"+{name}")


def test_several_at_once_and_by_keyword(log):
    written = log("recompiles", graph_breaks=True, guards=logging.DEBUG, timing=False)
    assert all(SHOWN[name] in written for name in ("recompiles", "graph_breaks", "guards"))
    assert "checked by" in written and SHOWN["timing"] not in written


def test_everything_but_what_is_taken_out(log):
    written = log("all,-guards,+capture")
    assert all(text in written for name, text in SHOWN.items() if name != "guards")
    assert SHOWN["guards"] not in written and "operations of step" in written


def test_details_are_asked_for_only_while_they_are_shown(log):
    for spec, wanted in (("timing", False), ("output_code", True), ("output_code,fusion", True), ("", False)):
        log(spec)
        assert events.detailed() is wanted


def test_a_limit_that_is_reached_is_logged_with_recompiles(log):
    assert "step (model.py:4) has 8 forms, other calls run eagerly" in log("recompiles")


def test_frames_left_eager_are_logged_with_breaks(log):
    assert "helper (util.py:9) runs eagerly: it is an async generator" in log("graph_breaks")


def test_each_call_replaces_the_choice_before(log):
    log("guards")
    assert log("timing").count("\n") == 1
    assert log("") == ""


@pytest.mark.parametrize("spec", ["guard", "+recompile", "capture,outputcode"])
def test_an_unknown_artefact_names_the_nearest(spec):
    with pytest.raises(InvalidOption, match="there is no log artefact") as e:
        set_logs(spec)
    assert "did you mean" in e.value.hint


def test_an_artefact_like_nothing_lists_them_all():
    with pytest.raises(InvalidOption) as e:
        set_logs(zzz=True)
    assert e.value.hint == f"one of {', '.join(ARTEFACTS)}"


def test_the_variable_turns_logs_on():
    code = "import jitney.debug, jitney.events as e; e.emit(e.Phase('capture', 'step', 0.5))"
    environment = os.environ | {"JITNEY_LOGS": "timing"}
    done = run_python("-c", code, env=environment, check=True)
    assert "[jitney.timing] capture of step: 0.5000 s" in done.stderr
