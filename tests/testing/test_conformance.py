"""The conformance suite: what it tries, what it reports, and how it is run."""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from testing.wrong_backends import WRONG

from jitney.cli import main
from jitney.errors import BackendNotFound, InvalidOption
from jitney_testing import Program, Xfail, conformance_tests, read_xfails, run_conformance
from jitney_testing.conformance import run_case, run_check
from jitney_testing.opinfo.compare import Difference
from jitney_testing.report import Finding, Result, stale_xfails
from jitney_testing.scorecard import page
from jitney_testing.suite.check import Case, Check, Subject
from jitney_testing.suite.table import CHECKS, checks

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.filterwarnings("ignore")
DOCS = Path(__file__).parents[2] / "docs" / "conformance.md"
WRITTEN = [c for c in CHECKS if c.group not in ("operators", "graphs", "programs") and c.level == "quick"]

# The suite as a third party runs it; aot_eager is right.
test_conformance = conformance_tests("aot_eager", only="numbers|shapes|views|randomness|training|memory")


def test_names_are_unique_and_levels_nest() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS) > 70
    assert {c.name for c in checks("quick")} < {c.name for c in checks("full")}
    assert [c.group for c in checks(only="views")] == ["views"] * 10


def test_every_group_is_documented() -> None:
    text = DOCS.read_text()
    assert [c.name for c in CHECKS if f"`{c.group}`" not in text] == []


@pytest.mark.parametrize("check", WRITTEN, ids=lambda check: check.name)
def test_what_a_check_runs_does_not_raise_in_eager(check: Any) -> None:
    """A program that raises tries nothing."""
    for case in check.cases(Subject("eager")):
        program = case.run.args[0] if hasattr(case.run, "args") else None
        if getattr(program, "source", None) is None or check.name == "contract.wrong_exceptions":
            continue
        loaded = program.load()
        for arguments in loaded.calls():
            loaded.program(*arguments)


def report_of(name: str, only: str, **options: Any) -> Any:
    return run_conformance(WRONG[name][0], only=only, **options)


def test_a_report_has_everything(tmp_path: Path) -> None:
    report = report_of("off_by_a_percent", "contract.wrong_results|memory.leaks$|views.dropped_result")
    assert not report.passed and {r.name for r in report.results} >= {"memory.leaks", "contract.wrong_results"}
    found = report.findings[0]
    assert (found.check, found.kind) == ("contract.wrong_results", "values")
    assert "assert_same(Program.read(__file__)" in found.script and "wrong_backends" in found.script
    again = json.loads(report.to_json())
    assert again["passed"] is False and again["results"][0]["findings"][0]["kind"] == "values"
    text = page(report)
    assert "contract.wrong_results" in text and "assert_same(" in text and "http" not in text
    assert str(report).startswith("off_by_a_percent on cpu, quick: failed; ")


def test_expected_failures_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "xfails.toml"
    file.write_text(
        '[[xfail]]\ncheck = "contract\\\\.wrong.*"\nfailure = "^values"\nreason = "a percent is what we promise"\n'
        '[[xfail]]\ncheck = "memory.*"\nreason = "no longer"\n'
    )
    report = report_of("off_by_a_percent", "contract.wrong_results|memory.leaks$", xfails=file)
    assert report.passed and {f.expected for f in report.expected} == {"a percent is what we promise"}
    assert [entry.check for entry in report.stale] == ["memory.*"]
    assert "what we promise" in page(report) and "no longer" in page(report)


@pytest.mark.parametrize("text", ["[[xfail]]\ncheck = 'x'", "[[xfail]]\ncheck = 'x'\nreason = 'r'\nop = 'y'", "[["])
def test_a_malformed_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "xfails.toml").write_text(text)
    with pytest.raises(InvalidOption, match=r"xfails\.toml"):
        read_xfails(tmp_path / "xfails.toml")
    with pytest.raises(InvalidOption, match=r"none\.toml"):
        read_xfails(tmp_path / "none.toml")


def test_stale_entries_are_those_that_were_tried() -> None:
    failed = Result("a.b", "", findings=[Finding("a.b", "1", "", "values", "x")], cases=["1", "2"], complete=True)
    entries = [Xfail("a.b", "r"), Xfail("a.b", "r", failure="dtype"), Xfail("c.d", "r"), Xfail("a.b", "r", case="2")]
    assert stale_xfails([failed], entries) == [entries[1], entries[3]]
    failed.complete = False  # time was over before the case that fails
    assert stale_xfails([failed], [*entries, Xfail("a.b", "r", case="3")]) == [entries[3]]


def test_what_hangs_or_raises_is_a_finding() -> None:
    def loop() -> None:
        while True:
            pass

    def refuse() -> None:
        raise LookupError("lost")

    assert run_case(Case("1", loop, str), 0.1) == Difference("hangs", "it took longer than 0.1 s")
    assert run_case(Case("1", refuse, str)) == Difference("raises", "LookupError: lost")
    assert run_case(Case("1", lambda: sys.exit(3), str)) == Difference("raises", "SystemExit: 3")


def test_a_program_that_cannot_be_made_smaller_is_shown_as_it_is() -> None:
    def refuse(headline: str, found: Difference) -> str:
        raise RuntimeError("it raises otherwise now")

    case = Case("1", lambda: Difference("values", "x"), lambda headline: f"program of {headline}", refuse)
    found = run_check(Check("a.b", "it does", lambda subject: [case]), Subject("eager"))
    assert found.findings[0].script.startswith("program of a.b, found in eager: values: x")


def test_a_message_cannot_leave_the_docstring_of_a_program() -> None:
    said = 'it said: """ + boom() + """ \\u \\'
    text = Subject("eager").script(Program("def program(): ...\ndef inputs(): return []\n"), said)
    assert ast.get_docstring(ast.parse(text)) == "it said: ''' + boom() + ''' /u /"


def test_cases_that_have_run_are_not_run_again() -> None:
    ran: list[str] = []
    cases = [Case(name, functools.partial(ran.append, name), str) for name in "abc"]
    known = Result("x.y", "", tried=1, seconds=2.0, cases=["a"])
    found = run_check(Check("x.y", "", lambda subject: cases), Subject("eager"), result=known)
    assert ran == ["b", "c"] and found.cases == ["a", "b", "c"] and found.tried == 3 and found.complete
    assert found.seconds >= 2.0


def test_an_interrupt_keeps_what_there_is() -> None:
    def stop(check: Any, case: Any, result: Any) -> None:
        if check.name == "views.copy_for_a_view":
            raise KeyboardInterrupt

    report = run_conformance("eager", only="views", say=stop)
    assert report.interrupted and not report.passed
    assert [r.tried for r in report.results] == [2, 0]


def test_a_backend_that_is_not_there_is_an_error() -> None:
    with pytest.raises(BackendNotFound):
        run_conformance("no_such_backend")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"only": "no_such_check"}, "no check of level quick has a name that begins with 'no_such_check'"),
        ({"only": "("}, "no regular expression"),
        ({"device": "no_such_device"}, "device='no_such_device'"),
        ({"device": "cuda:99"}, "device='cuda:99'"),
    ],
)
def test_what_cannot_be_tried_is_an_error(given: Any, why: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(why)):
        run_conformance("eager", **given)


def test_an_expected_failure_has_regular_expressions() -> None:
    with pytest.raises(InvalidOption, match=r"check = '\(' is no regular expression"):
        Xfail("(", "r")


def test_budgets_hold_in_quick_only() -> None:
    found = [c.name for c in CHECKS if c.budget]
    assert found and all(re.match("operators|graphs|programs", name) for name in found)
    check = next(c for c in CHECKS if c.name == "graphs.forward")
    assert run_check(type(check)(check.name, "", check.cases, budget=1e-9), Subject("eager")).tried <= 1


# ---------------------------------------------------------------------- the command


def test_the_command_reports_and_exits(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    scorecard = tmp_path / "deep" / "report.html"
    here = ["conformance", "--in-process"]
    assert main([*here, "eager", "--only", "views.dropped", "--report", str(scorecard)]) == 0
    said = capsys.readouterr().out
    assert "passed, 0 findings in 4 cases" in said and "<h2>Groups</h2>" in scorecard.read_text()
    name = "testing.wrong_backends:works_on_copies"
    to = tmp_path / "report.json"
    assert main([*here, name, "--only", "views.dropped_write", "--report", str(to)]) == 1
    said = capsys.readouterr().out
    assert "views.dropped_write" in said and "writes" in said and str(to) in said
    assert json.loads(to.read_text())["passed"] is False


def test_the_command_needs_hypothesis(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["conformance", "eager"]) == 1
    assert "pip install 'jitney[testing]'" in capsys.readouterr().err


def test_a_scorecard_that_cannot_be_written_is_an_error_at_once(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "jitney_testing.commands.conformance._with_progress", lambda *given: pytest.fail("it has begun")
    )
    (tmp_path / "file").write_text("")
    assert main(["conformance", "eager", "--report", str(tmp_path / "file" / "report.html")]) == 1
    assert "report.html cannot be written" in capsys.readouterr().err.replace("\n", "")


# ---------------------------------------------------------------------- as pytest's tests


def test_a_check_is_a_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from jitney_testing import Xfail, conformance_tests
        from testing.wrong_backends import WRONG

        wrong, _ = WRONG["works_on_copies"]
        test_right = conformance_tests("eager", only="views.dropped")
        test_wrong = conformance_tests(wrong, only="views.dropped")
        expected = [Xfail("views.dropped_write", "we work on copies")]
        test_expected = conformance_tests(wrong, only="views.dropped", xfails=expected)
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rA")
    result.assert_outcomes(passed=4, failed=1, xfailed=1)
    result.stdout.fnmatch_lines(["*What the program writes to arguments is there after the call*", "*assert_same(*"])
