"""What a run of the conformance suite has found."""

from __future__ import annotations

import json
import platform
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from jitney.errors import InvalidOption


@dataclass(frozen=True)
class Finding:
    """Something that a backend does otherwise than it must.

    Args:
        check: its name.
        case: which of its cases.
        says: what the check is about.
        kind: what differs, in a word: ``values``, ``dtype``, ``aliasing``, ``exception``, ``hangs``...
        detail: where, and what both sides have.
        script: a program that fails alone.
        expected: the reason given in the list of expected failures; empty if it is in none.
    """

    check: str
    case: str
    says: str
    kind: str
    detail: str
    script: str = ""
    expected: str = ""

    def __str__(self) -> str:
        return f"{self.check} (case {self.case}): {self.kind}: {self.detail}"


@dataclass
class Result:
    """What became of one check.

    Args:
        name: the check's.
        says: what it is about.
        tried: how many cases ran.
        seconds: how long they took.
        findings: what is wrong, expected or not.
        cases: the names of those that ran.
        complete: did all its cases run? False if time or patience was over first, or the run was stopped.
    """

    name: str
    says: str
    tried: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)
    complete: bool = False

    @property
    def unexpected(self) -> list[Finding]:
        """Findings that no list expects."""
        return [finding for finding in self.findings if not finding.expected]


@dataclass(frozen=True)
class Xfail:
    """An expected failure: regular expressions for the whole name of check and case, and for what is found.

    Args:
        check: for the check's name.
        reason: why it fails, and why that stays so.
        case: for the case's name.
        failure: to be found in ``kind: detail``.

    Raises:
        InvalidOption: one of the expressions is none.
    """

    check: str
    reason: str
    case: str = ".*"
    failure: str = ""

    def __post_init__(self) -> None:
        for name in ("check", "case", "failure"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise InvalidOption(f"{name} = {getattr(self, name)!r} is no regular expression: {error}") from error

    def covers(self, finding: Finding) -> bool:
        """Is this the finding?"""
        named = re.fullmatch(self.check, finding.check) and re.fullmatch(self.case, finding.case)
        return bool(named) and re.search(self.failure, f"{finding.kind}: {finding.detail}") is not None


def read_xfails(path: str | Path) -> list[Xfail]:
    """The entries of a TOML file with an array of tables ``xfail``.

    Raises:
        InvalidOption: there is no such file, or an entry is none.
    """
    try:
        found: list[dict[str, Any]] = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("xfail", [])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidOption(f"the list of expected failures {path}: {error}") from error
    for entry in found:
        wrong = set(entry) - set(Xfail.__dataclass_fields__) or {"check", "reason"} - set(entry)
        if wrong or not all(isinstance(value, str) and value for value in entry.values()):
            raise InvalidOption(f"{path}: an entry [[xfail]] with check and reason, all text, was expected: {entry}")
    try:
        return [Xfail(**entry) for entry in found]
    except InvalidOption as error:
        raise InvalidOption(f"{path}: {error.reason}") from error


@dataclass
class Report:
    """What a run has found.

    Args:
        backend: its name.
        device, level, seed: of the run.
        results: of the checks that ran, in order.
        stale: expected failures whose checks ran, and that did not fail so.
        interrupted: was it stopped (Ctrl-C) before its end?
        versions: of what took part.
    """

    backend: str
    device: str
    level: str
    seed: int
    results: list[Result] = field(default_factory=list)
    stale: list[Xfail] = field(default_factory=list)
    interrupted: bool = False
    versions: dict[str, str] = field(
        default_factory=lambda: {
            "jitney": version("jitney"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        }
    )

    @property
    def findings(self) -> list[Finding]:
        """Everything that is wrong and not expected."""
        return [finding for result in self.results for finding in result.unexpected]

    @property
    def expected(self) -> list[Finding]:
        """What is wrong and expected."""
        return [finding for result in self.results for finding in result.findings if finding.expected]

    @property
    def passed(self) -> bool:
        """Did all checks run, without a finding that is not expected?"""
        return not self.findings and not self.interrupted

    @property
    def tried(self) -> int:
        """How many cases ran."""
        return sum(result.tried for result in self.results)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"passed": self.passed, **asdict(self)}

    def to_json(self) -> str:
        """The scorecard for programs."""
        return json.dumps(self.as_dict(), indent=2)

    def __str__(self) -> str:
        state = "interrupted" if self.interrupted else "passed" if self.passed else "failed"
        lines = [
            f"{self.backend} on {self.device}, {self.level}: {state}; {self.tried} cases of {len(self.results)} checks"
        ]
        return "\n".join([*lines, *(f"  {finding}" for finding in self.findings)])


def stale_xfails(results: Sequence[Result], xfails: Iterable[Xfail]) -> list[Xfail]:
    """The expected failures whose cases all ran, and none of which failed so."""
    found = [finding for result in results for finding in result.findings]
    return [x for x in xfails if _has_run(x, results) and not any(x.covers(finding) for finding in found)]


def _has_run(xfail: Xfail, results: Sequence[Result]) -> bool:
    """Did what it speaks of run? In a check that was cut short the case that fails may be one that did not."""
    about = [r for r in results if re.fullmatch(xfail.check, r.name)]
    if xfail.case == ".*":
        return bool(about) and all(r.complete for r in about)
    return any(re.fullmatch(xfail.case, case) for r in about for case in r.cases)
