"""The conformance suite finds what is wrong with backends that are wrong on purpose, under the right name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fork_server import run_python
from testing.all_wrong import WRONG

from jitney_testing.conformance import run_check
from jitney_testing.suite.check import Subject
from jitney_testing.suite.table import CHECKS

BY_NAME = {check.name: check for check in CHECKS}
DRAWN = {"graphs", "programs"}
RUNNER = """
import runpy, sys
for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="__main__")
    except AssertionError as error:
        print(path, " ".join(str(error).split())[:200])
"""

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_backend_is_found(name: str) -> None:
    backend, check = WRONG[name]
    result = run_check(BY_NAME[check], Subject(backend), most=1)
    assert result.findings, f"{check} finds nothing"
    assert "hangs" not in {finding.kind for finding in result.findings}


def test_there_are_enough_of_them() -> None:
    assert len(WRONG) >= 95
    assert {BY_NAME[check].group for _, check in WRONG.values()} == {c.group for c in CHECKS} - DRAWN


def test_a_finding_is_a_program_that_fails_alone(tmp_path: Path) -> None:
    found = {
        name: run_check(BY_NAME[check], Subject(WRONG[name][0]), most=1).findings[0]
        for name, check in (
            ("off_by_a_percent", "contract.wrong_results"),
            ("edits_the_graph", "contract.changes_the_graph"),
            ("wrong_for_one_operator", "operators.float32"),
        )
    }
    paths = [tmp_path / f"{name}.py" for name in found]
    for path, finding in zip(paths, found.values(), strict=True):
        path.write_text(finding.script)
    done = run_python("-c", RUNNER, *paths, check=True)
    said = done.stdout.splitlines()
    assert [line.split()[0] for line in said] == list(map(str, paths)), done.stderr
    assert all(re.search(word, line) for word, line in zip(("values", "graph", "index_select"), said, strict=True))
