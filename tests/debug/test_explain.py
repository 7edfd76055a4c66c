import dataclasses
import io
import sys
import threading
from pathlib import Path

import pytest
import torch
from rich.console import Console

import jitney
from jitney import events
from jitney.debug import ExplainOutput, explain, observe

sys.path.insert(0, str(Path(__file__).parent))
from samples import RECOMPILED, SKIPPED, captured  # noqa: E402


def sample():
    return ExplainOutput([captured(), captured(None, resumed=True)], [SKIPPED], [RECOMPILED])


def test_counts_come_from_the_events():
    output = sample()
    assert (output.graph_count, output.graph_break_count, output.op_count) == (2, 2, 6)
    assert output.ops_per_graph == [["sin", "abs", "add"]] * 2
    assert [item.reason for item in output.break_reasons] == ["print() writes to a file"]
    assert output.out_guards == ["L['x'] is a float32 tensor of shape (2,)"] * 2


def test_the_report():
    assert str(sample()) == (
        "Graph count: 2\n"
        "Graph break count: 2\n"
        "Op count: 6\n"
        "Breaks:\n"
        "  1. print() writes to a file\n"
        "     try: remove the call\n"
        "     user stack:\n"
        "       main.py:2, in main: step(x)\n"
        '       model.py:5, in step: print("woo")\n'
        "Left eager:\n"
        "  util.py:9, in helper: it is an async generator\n"
        "Recompiled:\n"
        "  model.py:4, in step: L['n'] == 3, found 4\n"
        "Ops per graph:\n"
        "  1. sin, abs, add\n"
        "  2. sin, abs, add\n"
        "Guards:\n"
        "  L['x'] is a float32 tensor of shape (2,)\n"
        "  L['x'] is a float32 tensor of shape (2,)"
    )


def test_the_rich_report_shows_the_same_facts():
    stream = io.StringIO()
    Console(file=stream, width=200).print(sample())
    for fact in (
        "2 graphs",
        "2 breaks",
        "6 ops",
        "print() writes to a file",
        'model.py:5, in step: print("woo")',
        "L['x']",
    ):
        assert fact in stream.getvalue()


def test_the_rich_report_cuts_nothing_in_a_narrow_terminal():
    stream = io.StringIO()
    output = sample()
    Console(file=stream, width=20).print(output)
    flat = "".join(stream.getvalue().split())
    assert all("".join(line.split()) in flat for line in str(output).splitlines()[4:] if not line.endswith(":"))


def test_only_this_threads_events_are_collected():
    with observe() as output:
        other = threading.Thread(target=events.emit, args=(captured(),))
        other.start()
        other.join()
        events.emit(captured(None))
    events.emit(captured())
    assert [frame.graph_break for frame in output.frames] == [None]


def classic(a, b):
    x = a / (torch.abs(a) + 1)
    print("woo")
    if b.sum() < 0:
        b = b * -1
    return x * b


CLASSIC_INPUTS = (torch.arange(100.0), torch.ones(100))


def test_the_classic_example_has_three_graphs_and_two_breaks_at_the_two_lines(capsys):
    output = explain(classic)(*CLASSIC_INPUTS)
    assert capsys.readouterr().out == "woo\n"
    assert (output.graph_count, output.graph_break_count) == (3, 2)
    assert [item.user_stack[-1].line for item in output.break_reasons] == ['print("woo")', "if b.sum() < 0:"]
    assert all(item.user_stack[-1].filename == __file__ for item in output.break_reasons)
    assert sum(map(len, output.ops_per_graph)) == output.op_count


def test_a_compiled_function_is_explained_afresh():
    compiled = jitney.compile(classic, backend="eager")
    compiled(*CLASSIC_INPUTS)
    assert explain(compiled)(*CLASSIC_INPUTS).graph_count == 3


def test_what_the_function_raises_is_raised_and_listening_ends():
    def bad(x):
        raise KeyError("mine")

    before = len(events._bus.listeners)
    with pytest.raises(KeyError, match="mine"):
        explain(bad)(torch.ones(1))
    assert len(events._bus.listeners) == before


def test_notebooks_show_the_same_facts_as_html():
    output = sample()
    output.frames[0] = dataclasses.replace(
        output.frames[0], guards=("x is <script>alert('no')</script>", *"abcdefghijklm")
    )
    shown = output._repr_html_()
    assert shown.startswith("<p><b>2</b> graphs, <b>2</b> breaks, <b>6</b> ops</p>")
    assert (
        "<details open><summary>Breaks (1)</summary><pre>1. print() writes to a file\n   try: remove the call" in shown
    )
    assert "<details><summary>Guards (15)</summary>" in shown
    assert "&lt;script&gt;" in shown and "<script>" not in shown
