import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import jitney
from jitney import config, events
from jitney_tools.debug_folder import event_log, folder

F = torch.nn.functional


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.gelu(x @ w)
    print(end="")
    return (y.softmax(-1) * float("inf")).nan_to_num(0.0, 1.0).sum()


Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Run]:
    """``run(**settings)`` trains one step in a debug folder, which it returns."""

    def trained(backend: Any = "llvm_cpu", **settings: Any) -> Path:
        with config.patch(compile_debug=True, base_dir=str(tmp_path / "base"), **settings):
            w = torch.randn(8, 8, requires_grad=True)
            compiled = jitney.compile(program, backend=backend)
            compiled(torch.randn(4, 8), w).backward()
            compiled(torch.randn(5, 8), w)
            made = folder.current()
            assert made is not None
        assert str(made.path) in caplog.text
        return made.path

    yield trained
    for made in list(folder._open.values()):
        made.close()
    folder._open.clear()
    folder._refused.clear()


FILES = {
    *("fx_graph_readable.py", "fx_graph_runnable.py", "emitted.py", "guards.txt", "aot_wrapper.py"),
    *(f"{name}_{kind}{end}" for kind in ("forward", "backward")
      for name, end in (("aten", ".txt"), ("ir_pre_fusion", ".txt"), ("ir_post_fusion", ".txt"),
                        ("output_code", ".txt"), ("llvm_ir", ".ll"), ("graph", ".svg"))),
    *("aten_joint.txt", "graph_joint.svg", "graph_captured.svg"),
}  # fmt: skip


def test_each_frame_has_a_folder_with_every_file(run: Run) -> None:
    path = run()
    frames = sorted(p.name.partition("_")[2] for p in path.iterdir() if p.is_dir())
    assert frames == ["program"] * 4  # two pieces around the break, compiled twice
    first, rest, *_ = sorted(p for p in path.iterdir() if p.is_dir())
    for frame in (first, rest):
        assert {p.name for p in frame.iterdir()} == FILES
        assert all(p.stat().st_size for p in frame.iterdir() if p.name != "guards.txt")
    assert (
        "matmul" in (first / "fx_graph_readable.py").read_text() and "<svg" in (first / "graph_joint.svg").read_text()
    )
    assert "test_folder.py" in (first / "aten_forward.txt").read_text()
    log = (path / "debug.log").read_text()
    for artefact in ("capture", "guards", "graph_breaks", "fusion", "timing", "output_code", "recompiles"):
        assert f"[jitney.{artefact}]" in log


def test_switches_leave_files_out(run: Run) -> None:
    switches = [name for name in vars(config) if name.startswith("trace_") and name != "trace_numpy"]
    path = run(**dict.fromkeys(switches, False))
    assert {p.name for p in path.rglob("*") if p.is_file()} == {event_log.FILE, "guards.txt"}
    assert config.trace.graph_svg is config.trace_graph_svg is True


def test_the_runnable_graph_runs(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for file, shape in zip(sorted(run().glob("*/fx_graph_runnable.py")), ["(4, 8)", "()", "(5, 8)", "()"], strict=True):
        for arguments in ([], ["--backend", "eager"]):
            monkeypatch.setattr(sys, "argv", [str(file), *arguments])
            runpy.run_path(str(file), run_name="__main__")
            assert capsys.readouterr().out.startswith(f"0 {shape}")


def test_events_can_be_read_again(run: Run) -> None:
    path = run()
    found = list(event_log.read(path))
    assert found[0]["event"] == "Run" and found[0]["format"] == event_log.FORMAT
    frames = [r for r in found if r["event"] == "FrameCaptured"]
    assert len(frames) == 4 and frames[0]["graph_break"]["user_stack"][-1]["text"] == 'print(end="")'
    assert all(line.partition(":")[0].endswith("test_folder.py") for frame in frames for line in frame["lines"])
    sources = [r for r in found if r["event"] == "Source"]
    assert [Path(r["file"]).name for r in sources] == ["test_folder.py"] and "def program" in sources[0]["text"]
    backward = next(r for r in found if r["event"] == "Scheduled" and r["kind"] == "backward")
    forward = next(r for r in found if r["event"] == "Scheduled" and r["number"] == backward["number"])
    assert forward["kind"] == "forward" and forward["launches"]
    with open(path / event_log.FILE, "a") as file:
        file.write('{"event": "cut')
    assert len(list(event_log.read(path))) == len(found)


def test_nothing_is_written_without_it(tmp_path: Path) -> None:
    with config.patch(base_dir=str(tmp_path / "base")):
        jitney.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_told_and_the_program_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with config.patch(compile_debug=True, base_dir=str(tmp_path / "file" / "base")):
        assert jitney.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist() == [2, 2]
    assert caplog.text.count("no debug folder") == 1
    folder._refused.clear()


def test_a_fault_of_the_tools_is_told_and_the_program_runs(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise ValueError("this one")

    monkeypatch.setitem(folder._WRITERS, events.FrameCaptured, fail)
    path = run()
    assert "ValueError: this one" in caplog.text and not list(path.glob("*/emitted.py"))


def test_a_full_disk_ends_the_folder_and_not_the_program(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def full(*args: object) -> None:
        raise OSError("no space left")

    monkeypatch.setitem(folder._WRITERS, events.FrameCaptured, full)
    with config.patch(compile_debug=True, base_dir=str(tmp_path / "base")):
        jitney.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        assert folder.current() is None
    assert "is not written any further: no space left" in caplog.text


def test_a_forked_child_has_a_folder_of_its_own(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = run()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with config.patch(compile_debug=True, base_dir=str(tmp_path / "base")):
        other = folder.current()
    assert other is not None and other.path != path and other.path.name.endswith("pid_1")


def test_records_are_json_whatever_the_event_holds() -> None:
    failed = events.GraphFailed("f", "a.py", 1, ValueError("no"))
    assert json.loads(json.dumps(event_log.record(failed, 3))) == {
        "event": "GraphFailed",
        "number": 3,
        "name": "f",
        "filename": "a.py",
        "line": 1,
        "error": "ValueError: no",
        "blame": None,
    }
