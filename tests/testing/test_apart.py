"""The suite in a process of its own: what becomes of a backend that takes that down."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from jitney.cli import main
from jitney.errors import JitneyError
from jitney_testing.isolated import run_apart
from jitney_testing.report import Finding, Result

pytestmark = pytest.mark.filterwarnings("ignore")
TESTS = str(Path(__file__).parents[1])


@pytest.fixture(autouse=True)
def _found_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")]))


def test_a_crash_is_a_finding_and_the_rest_is_tried(tmp_path: Path, capsys: Any) -> None:
    report = tmp_path / "report.json"
    only = "contract.writes_to_inputs|views.dropped_result"
    given = ["conformance", "testing.killers:crashes", "--only", only, "--report", str(report)]
    assert main(given) == 1
    said = capsys.readouterr().out
    assert "contract.writes_to_inputs (case 1): dies" in said and "ended by SIGSEGV" in said
    found = [Result(**result) for result in json.loads(report.read_text())["results"]]
    assert [(r.name, r.cases, r.complete) for r in found] == [
        ("contract.writes_to_inputs", ["1", "2", "3"], True),
        ("views.dropped_result", ["1"], True),
    ]
    first = Finding(**found[0].findings[0])  # type: ignore[arg-type]
    assert "testing.killers" in first.script and "found in crashes: dies: " in first.script


def test_a_process_that_ends_before_it_began_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitney_testing.isolated._serve", lambda *given: os._exit(7))
    context = multiprocessing.get_context("fork")  # faster
    monkeypatch.setattr("multiprocessing.get_context", lambda kind: context)
    with pytest.raises(JitneyError, match="ended with exit status 7 before it began"):
        run_apart(lambda: "eager", only="views.dropped_result")
