"""``jitney cache``: what is on disk, for people and programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cache.again import run

from jitney.cli import main

PROGRAM = "def fn(x): return x + 1\ndef arguments(): return [torch.ones(2)]\n"


def test_the_cache_is_listed_measured_and_cleared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(PROGRAM, backend="aot_eager")
    (folder / "frames" / "notes.txt").write_text("somebody else's")
    assert main(["cache", "size", "--json"]) == 0
    size = json.loads(capsys.readouterr().out)
    assert size["folder"] == str(folder) and size["parts"]["frames"]["files"] == 2
    assert main(["cache", "ls", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sum(row["size"] for row in rows) == size["parts"]["frames"]["bytes"]
    assert main(["cache", "ls"]) == main(["cache", "size"]) == 0
    assert "frames: 2 files" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.endswith("2 files removed\n")
    assert [path.name for path in (folder / "frames").iterdir()] == ["notes.txt"]
    assert "stored" in run(PROGRAM, backend="aot_eager")[2].steps


def test_an_empty_cache_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("ls", "size", "clear"):
        assert main(["cache", action]) == 0
    assert "0 files removed" in capsys.readouterr().out
