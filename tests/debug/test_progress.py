"""The line on a terminal while compiling takes long."""

from __future__ import annotations

import io
import os
import sys
import time

import pytest

import jitney
from jitney import events
from jitney.debug.progress import progress as shown


class Terminal(io.StringIO):
    """A stream that is one."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Where stderr goes from now on; the line comes at once."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys.modules[type(shown).__module__], "AFTER", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def wait(terminal: Terminal) -> None:
    """Until the line is there."""
    while "jitney compiles" not in terminal.getvalue():
        time.sleep(0.01)


def test_a_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with events.step(1, "capture", "train_step"):
        wait(terminal)
        with events.step(3, "llvm_cpu", "train_step"):
            assert shown.text().startswith("jitney compiles train_step, ") and shown.text().endswith(": llvm_cpu")
        assert shown.text().endswith(": capturing")
    assert shown.line is None and shown.timer is None and not shown.steps and shown.text() == ""
    assert "jitney compiles train_step" in terminal.getvalue()
    before = terminal.getvalue()
    with jitney.config.patch(progress=False), events.step(1, "capture", "other"):
        assert shown.timer is None
    assert terminal.getvalue() == before


def test_a_step_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with pytest.raises(ValueError, match="no"), events.step(1, "capture", "[red]"):
        wait(terminal)
        raise ValueError("no")
    assert shown.line is None and not shown.steps and "[red]" in terminal.getvalue()


def test_no_line_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with events.step(1, "capture", "step"):
            assert shown.timer is None and not shown.steps


def test_short_compilations_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys.modules[type(shown).__module__], "AFTER", 1e6)
    with events.step(1, "capture", "step"):
        assert shown.timer is not None
    assert shown.timer is None and stream.getvalue() == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    with events.step(1, "capture", "step"):
        pid = os.fork()
        if not pid:
            os._exit(bool(shown.steps or shown.line or shown.lock.locked()))
    assert os.waitpid(pid, 0)[1] == 0
