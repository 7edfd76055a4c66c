"""``jitney watch``: what a process tells of itself, to whom, and how it looks."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from rich.console import Console

import jitney
from jitney import config, events
from jitney.cli import main
from jitney.errors import JitneyError
from jitney_tools.watch import publisher
from jitney_tools.watch.activity import activity, users_line
from jitney_tools.watch.collector import Collector
from jitney_tools.watch.folder import folder, state_of, states, write
from jitney_tools.watch.state import State, parse
from jitney_tools.watch.view import overview, view


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / f"jitney-watch-{os.getuid()}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    with events.listen(found.note):
        yield found


def shown(what: Any) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(what)
    return console.export_text()


def eventually(found: Callable[[], bool]) -> bool:
    for _ in range(500):
        if found():
            return True
        time.sleep(0.02)
    return False


def step(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print(end="")
    return y.cos()


def test_counts_breaks_and_recompiles(collector: Collector) -> None:
    compiled = jitney.compile(step, backend="aot_eager")
    for n in (2, 3):
        compiled(torch.ones(n))
    state = collector.state()
    assert (state.counts["captured"], state.counts["graphs"], state.counts["recompiles"]) == (4, 4, 2)
    assert [(row.count, "print" in row.reason) for row in state.breaks] == [(2, True)]
    assert "test_watch.py" in state.breaks[0].line and "Tensor(2,)" in state.recompiles[0].guard
    assert [(row.name, row.captures) for row in state.functions] == [("step", 4)]
    assert not state.in_flight
    assert parse(state.text()) == state
    text = shown(view(state))
    assert "recompiles 2" in text and "print" in text and "guard that failed" in text


def test_what_is_compiled_now_and_the_line_that_called_it(collector: Collector) -> None:
    found: list[State] = []

    def backend(graph: Any, inputs: Any) -> Any:
        found.append(collector.state())
        return graph.forward

    jitney.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    (state,) = found
    assert [flying.function for flying in state.in_flight] == ["<lambda>"] * len(state.in_flight)
    assert state.in_flight[-1].phase.startswith("backend")
    assert "test_watch.py" in state.in_flight[-1].line
    assert "compiled now" in shown(view(state)) and str(state.pid) in shown(overview([state, state]))


def test_what_compiles_while_an_event_is_noted_does_not_wait_for_itself() -> None:
    collector = Collector()
    inner = events.FrameSkipped("handler", "train.py", 9, "of a signal")

    class Interrupted(str):
        def __len__(self) -> int:  # as a signal handler or a finalizer would, in the middle of it
            collector.note(inner)
            return super().__len__()

    outer = events.FrameSkipped("step", "train.py", 2, Interrupted("whole"))
    thread = threading.Thread(target=collector.note, args=(outer,), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert {row.reason for row in collector.state().breaks} == {"whole", "of a signal"}


def test_what_ends_while_nobody_tells_is_not_in_flight_for_ever() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        config.watch = False
        assert eventually(lambda: publisher._publisher._thread is None)
        return graph.forward

    with config.patch(watch=True):
        jitney.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
        config.watch = True
        jitney.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
        assert eventually(lambda: bool(states()))
        assert publisher._publisher.collector.state().in_flight == []
    assert eventually(lambda: publisher._publisher._thread is None)


def test_after_its_end_a_process_writes_no_more(runtime: Path) -> None:
    own = publisher.Publisher()
    with config.patch(watch=True):
        own.note(events.FrameSkipped("step", "train.py", 2, "a reason"))
        assert eventually(lambda: bool(states()))
        own.close()
        own.write()
        own.note(events.FrameSkipped("step", "train.py", 2, "a reason"))
        assert eventually(lambda: own._thread is None)
    assert not list(runtime.iterdir())


def frames(*filenames: str) -> FrameType:
    """The innermost frame of functions in these files, the outermost first; a name after ``!`` is the function's."""
    inner: Callable[[], FrameType] = sys._getframe
    for filename in reversed(filenames):
        file, _, name = filename.partition("!")
        space: dict[str, Any] = {"inner": inner, "__name__": "jitney_own" if "plugin" in file else "program"}
        exec(compile(f"def {name or 'f'}():\n    return inner()", file, "exec"), space)
        inner = space[name or "f"]
    return inner()


def test_where_threads_are() -> None:
    entry, torchs = "<jitney step 7f>!_entry", torch.nn.functional.__file__
    core = os.path.dirname(jitney.__file__) + "/runtime/continuation.py"
    assert activity(frames("train.py", entry, "<jitney aot step 1>!_run")) == "graphs"
    assert activity(frames("train.py", entry, "<eval_with_key>.3!forward", torchs)) == "graphs"
    assert activity(frames("train.py", entry, "<jitney aot step 1>!_run", "plugin.py")) == "graphs"
    assert activity(frames("train.py", entry)) == "guards"
    assert activity(frames("train.py", core)) == "guards"
    assert activity(frames("train.py", core, "model.py", torchs)) == "breaks"
    assert activity(frames("train.py", entry, "model.py")) == "breaks"
    assert activity(frames("train.py", core, entry, "<jitney aot step 1>!_run")) == "graphs"
    inner = frames("train.py", core, "plugin.py")
    assert users_line(inner) == "train.py:2"


def test_a_process_is_told_of_only_while_it_is_asked_for(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = jitney.compile(step, backend="eager")
    compiled(torch.ones(2))
    assert not runtime.exists()
    assert main(["watch"]) == 1 and "no process of yours can be watched" in capsys.readouterr().err
    with config.patch(watch=True):
        compiled(torch.ones(2, 2))
        assert eventually(lambda: bool(states()))
        assert runtime.stat().st_mode & 0o777 == 0o700
        (file,) = runtime.glob("*.json")
        assert file.stat().st_mode & 0o777 == 0o600
        assert main(["watch", str(os.getpid()), "--once"]) == 0
        assert "recompiled" in capsys.readouterr().out
        assert main(["watch", "--json"]) == 0
        assert [row["pid"] for row in json.loads(capsys.readouterr().out)] == [os.getpid()]
    assert eventually(lambda: publisher._publisher._thread is None)
    assert not list(runtime.iterdir())
    with pytest.raises(JitneyError, match="cannot be watched(.|\n)*JITNEY_WATCH=1"):
        state_of(os.getpid())


def test_a_folder_that_is_not_this_users_alone_is_refused(runtime: Path, tmp_path: Path) -> None:
    runtime.mkdir(mode=0o755)
    with pytest.raises(JitneyError, match="not a folder of yours alone"):
        folder(make=True)
    runtime.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    runtime.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JitneyError, match="not a folder of yours alone"):
        folder()


def test_files_that_no_process_has_written_are_passed_over(runtime: Path, tmp_path: Path) -> None:
    own = folder(make=True)
    assert own is not None
    pid = os.getpid()
    state = State(pid, "a\x1b[2Jprogram", 0.0, 0.0)
    write(own / f"{pid}.json", state.text())
    assert "\x1b" not in shown(view(states()[0])) and "program" in shown(overview(states()))
    no_time = [state.text().replace('"seconds": {}', f'"seconds": {{"a": {n}}}') for n in ("NaN", "1e999", "-1")]
    deep = state.text().replace('"counts": {}', f'"counts": {"[" * 50000}{"]" * 50000}')
    other = (*no_time, deep, "{}", "[1]")
    for text in (*other, state.text().replace('"counts": {}', '"counts": {"a": "b"}'), "\xff", "1" * (2 << 20)):
        write(own / f"{pid}.json", text)
        assert states() == []
        with pytest.raises(JitneyError):
            state_of(pid)
    (tmp_path / "target").write_text(state.text())
    (own / f"{pid}.json").unlink()
    (own / f"{pid}.json").symlink_to(tmp_path / "target")
    assert states() == []
    write(own / "999999999.json", State(999999999, "gone", 0.0, 0.0).text())
    assert states() == [] and not (own / "999999999.json").exists()


def test_numbers_that_are_no_process(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = folder(make=True)
    assert own is not None
    for number in (0, -1, 99999999999999999999):
        write(own / f"{number}.json", State(number, "none", 0.0, 0.0).text())
        with pytest.raises(JitneyError, match="cannot be watched"):
            state_of(number)
    assert main(["watch", "99999999999999999999"]) == 1 and "cannot be watched" in capsys.readouterr().err
    left = [own / name for name in ("999999999.abc.tmp", f"{'9' * 30}.abc.tmp", "none.tmp")]
    writing = own / f"{os.getpid()}.abc.tmp"
    for path in (*left, writing):
        path.write_text("{")
    assert states() == [] and [*own.iterdir()] == [writing]
