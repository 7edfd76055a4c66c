"""The command that runs torch's tables: what is a failure, and what becomes of a case that ends its process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from differential import torch_tables

TESTS = str(Path(__file__).parents[1])
KNOWN = """
[[known]]
case = "modules: nn.GELU float32 eval #.*"
backend = ".*off_by_a_percent"
failure = "^values"
reason = "wrong on purpose"
"""


@pytest.fixture(autouse=True)
def _found_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")]))


def run(tmp_path: Path, backend: str, names: str, kinds: str, *more: str) -> tuple[int, list[dict[str, Any]]]:
    out = tmp_path / "out.json"
    given = ["--backend", backend, "--names", names, "--kinds", kinds, "--jobs", "1", "--out", str(out), *more]
    status = torch_tables.main(given)
    return status, json.loads(out.read_text())["outcomes"]


@pytest.mark.slow
def test_cases_of_both_tables_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, outcomes = run(tmp_path, "aot_eager", "nn.GELU|SGD", "float32 eval|fused", "--fraction", "0.3", "--shared")
    assert status == 0 and [o for o in outcomes if o["failure"]] == []
    said = capsys.readouterr().out
    assert "0 new failures" in said and "optimizers fused" in said


def test_failures_are_noticed_unless_they_are_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "testing.wrong_backends:off_by_a_percent"
    status, outcomes = run(tmp_path, wrong, "nn.GELU", "float32 eval")
    assert status == 1 and outcomes and all(o["failure"].startswith("values") for o in outcomes)
    known = tmp_path / "known.toml"
    known.write_text(KNOWN)
    assert run(tmp_path, wrong, "nn.GELU", "float32 eval", "--known", str(known))[0] == 0


@pytest.mark.slow
def test_a_case_that_ends_its_process_is_its_failure_alone(tmp_path: Path) -> None:
    narrow = ("--fraction", "0.43", "--seed", "21")  # Tanh, Softmin, Tanh: each process takes seconds to start
    status, outcomes = run(tmp_path, "testing.killers:crashes", "nn.Softmin|nn.Tanh", "float32 inference", *narrow)
    failed = {o["case"].split()[1]: o["failure"] for o in outcomes if o["failure"]}
    assert status == 1 and [*failed] == ["nn.Softmin"]
    assert failed["nn.Softmin"].startswith("lost: its process ended with exit code -11")


@pytest.mark.slow
def test_a_case_that_hangs_is_a_failure(tmp_path: Path) -> None:
    narrow = ("nn.Softmin", "float32 inference", "--fraction", "0.01", "--patience", "12")
    status, (outcome,) = run(tmp_path, "testing.killers:hangs", *narrow)
    assert status == 1 and outcome["failure"].startswith("lost: no outcome for 12 s")


def test_seconds_end_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "eager", "nn.GELU", "float32.*", "--seconds", "0")[0] == 0
    assert "1 of " in capsys.readouterr().out


def test_what_does_not_exist_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--tables", "losses"], ["--names", "nn.Nothing"], ["--backend", "no_such"]):
        assert torch_tables.main(argv) == 2
        assert "torch-tables: " in capsys.readouterr().err
