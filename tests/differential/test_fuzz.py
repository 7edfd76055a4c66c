"""Fuzzing ends in time, says its seed, and writes what it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from differential import fuzz
from testing.wrong_backends import WRONG

from jitney_testing import Program
from jitney_testing.same import compare

pytestmark = pytest.mark.filterwarnings("ignore")


def test_what_is_found_is_written_down(tmp_path: Path, capsys: Any) -> None:
    wrong, _ = WRONG["off_by_a_percent"]
    out = tmp_path / "found"
    argv = ["--seed", "7", "--only", "graphs", "--out", str(out), "--minutes"]
    minutes = next(m for m in ("0.08", "1", "5") if fuzz.main([*argv, m], {"wrong": wrong}) == 1)  # on a busy machine
    _, _, said = capsys.readouterr().out.rpartition("seed 7; ")
    assert said.startswith(f"wrong; {minutes} minutes") and "found: 0" not in said
    path = next(out.iterdir())
    text = path.read_text()
    assert "Found by fuzzing, graphs, seed 7" in text and str(path) in said.replace("\n", "")
    assert compare(Program.read(path), wrong) is not None and compare(Program.read(path), "eager") is None


def test_nothing_found_is_a_success(tmp_path: Path, capsys: Any) -> None:
    assert fuzz.main(["--minutes", "0.02", "--backends", "eager", "--out", str(tmp_path / "none")]) == 0
    assert "found: 0" in capsys.readouterr().out and not (tmp_path / "none").exists()


LOOP = """
import torch

def program(x):
    i = 0
    while i < 2:
        i += {step}
    return x + i

def inputs():
    return [torch.ones(2)]
"""


@pytest.mark.parametrize("step", [0, 1])
def test_programs_without_an_end_are_passed_over(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code that hangs where eager does not is a finding."""

    def hangs(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            while True:
                pass

        return run

    monkeypatch.setattr(fuzz, "PATIENCE", 1.0)
    monkeypatch.setattr(fuzz, "programs", lambda seed, only: iter([("a loop", Program(LOOP.format(step=step)))]))
    argv = ["--minutes", "1", "--out", str(tmp_path / "found")]
    assert fuzz.main(argv, {"hangs": hangs}) == step
    assert len([*tmp_path.glob("found/*hangs*")]) == step
