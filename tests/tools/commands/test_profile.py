import json
from pathlib import Path

import pytest

import jitney
from jitney.cli import main
from jitney_tools.debug_folder import event_log, folder

PROGRAM = """
import torch

def step(x):
    y = torch.softmax(x @ x, -1)
    print(end="")
    return y.sort().values * 2

def example_inputs():
    return torch.randn(8, 8, requires_grad=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "profiled_program.py"
    file.write_text(PROGRAM)
    return file


def test_it_prints_parts_and_kernels_and_writes_a_trace(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    arguments = ["--backend", "llvm_cpu", "--backward", "--calls", "2", "--top", "5", "--trace", str(trace)]
    assert main(["profile", f"{program}:step", *arguments]) == 0
    out = capsys.readouterr().out
    for text in ("guards, and fetching inputs", "operators as a whole", "(as a whole)", "GB/s", "more (--top)"):
        assert text in out
    found = json.loads(trace.read_text())["traceEvents"]
    assert {"compile", "graph", "kernel", "extern"} <= {event["cat"] for event in found}
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in found if event["ph"] == "X")
    assert main(["profile", f"{program}:step", "--backend", "llvm_cpu", "--calls", "2", "--top", "50"]) == 0
    out = capsys.readouterr().out
    assert "0 mm (as a whole)" in out and "more (--top)" not in out


def test_a_report_has_the_measured_times(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    with jitney.config.patch(base_dir=str(tmp_path / "debug")):
        arguments = ["--backend", "llvm_cpu", "--calls", "2", "--report", str(page)]
        assert main(["profile", f"{program}:step", *arguments]) == 0
        made = folder.current()
        assert made is not None
        made.close()
    assert f"report: {page}" in capsys.readouterr().out
    text = page.read_text()
    assert "0 mm" in text and "<meter" in text and "measures times" not in text
    frames = [own for own in event_log.read(made.path) if own["event"] == "FrameCaptured"]
    assert len(frames) == 2  # the program that is timed without markers is not in it


def test_a_backend_without_kernels_is_said(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", f"{program}:step", "--backend", "eager", "--calls", "1"]) == 0
    assert "No kernels: the backend runs graphs operator by operator." in capsys.readouterr().out


@pytest.mark.parametrize(("target", "told"), [("nowhere.py:f", "there is no file"), ("x", "is not FILE:FUNCTION")])
def test_what_is_not_there_is_said(target: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", target]) == 1
    said = capsys.readouterr().err
    assert said.startswith("jitney profile: ") and told in said
