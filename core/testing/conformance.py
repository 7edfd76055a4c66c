"""Running the suite on a backend."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jitney.api import reset
from jitney.backends import resolve
from jitney.debug.limit import TimeLimit, time_limit
from jitney.testing.compare import Difference
from jitney.testing.report import Finding, Report, Result, Xfail, read_xfails, stale_xfails
from jitney.testing.suite.check import Case, Check, Level, Subject
from jitney.testing.suite.table import checks

PATIENCE = 120.0  # seconds that one case may take
MOST = 3  # findings of one check, after which its other cases are left out
Say = Callable[[Check, Case | None, Result], None]


def run_conformance(
    backend: Any,
    level: Level = "quick",
    *,
    device: str = "cpu",
    options: Mapping[str, Any] | None = None,
    xfails: Sequence[Xfail] | str | Path = (),
    seed: int = 0,
    only: str = "",
    say: Say | None = None,
) -> Report:
    """Try everything that a backend must do, and report what it does not.

    Ctrl-C ends the run; the report has what was found by then.

    Args:
        backend: a name, a ``Backend`` or a callable, as ``jitney.compile`` takes it.
        level: ``quick`` takes about a minute, ``full`` some more: all operators of torch's database, hundreds of
            generated programs, models of ``transformers``.
        device: where tensors are made: ``cpu``, ``cuda``.
        options: of the backend.
        xfails: failures that are expected, or the TOML file that lists them (``read_xfails``).
        seed: chooses what is sampled and generated.
        only: a regular expression for the beginning of the names of checks.
        say: called before and after each case, and after each check.

    Raises:
        BackendNotFound, PluginError, InvalidOption: see ``jitney.errors``.
    """
    resolve(backend, options, None)
    expected = read_xfails(xfails) if isinstance(xfails, (str, Path)) else list(xfails)
    subject = Subject(backend, device, dict(options or {}), level, seed)
    report = Report(subject.name, device, level, seed)
    try:
        for check in checks(level, only):
            report.results.append(Result(check.name, check.says))
            run_check(check, subject, expected, report.results[-1], say)
    except KeyboardInterrupt:
        report.interrupted = True
    report.stale = stale_xfails(report.results, expected)
    return report


def run_check(
    check: Check,
    subject: Subject,
    xfails: Sequence[Xfail] = (),
    result: Result | None = None,
    say: Say | None = None,
    most: int = MOST,
) -> Result:
    """The cases of one check; ``result`` is filled as they come, with ``most`` findings that are not expected."""
    found = result or Result(check.name, check.says)
    begin = time.monotonic()
    for case in check.cases(subject):
        if check.budget and subject.level == "quick" and time.monotonic() - begin > check.budget:
            break
        if say is not None:
            say(check, case, found)
        difference = run_case(case)
        found.tried += 1
        found.seconds = time.monotonic() - begin
        if difference is not None:
            found.findings.append(_finding(check, case, subject, difference, xfails))
            if len(found.unexpected) >= most:
                break
    if say is not None:
        say(check, None, found)
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without warnings, and without what torch logs of stand-ins that something could not be tried on."""
    loud = logging.getLogger("torch._subclasses.fake_tensor")
    level = loud.level
    loud.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        loud.setLevel(level)


def run_case(case: Case, seconds: float = PATIENCE) -> Difference | None:
    """What is wrong; that it hangs, or that comparing it raises, is something wrong, too."""
    try:
        with time_limit(seconds), quiet():
            return case.run()
    except TimeLimit as limit:
        return Difference("hangs", str(limit))
    except Exception as error:
        return Difference("raises", f"{type(error).__name__}: {error}")
    finally:
        reset()


def _finding(check: Check, case: Case, subject: Subject, difference: Difference, xfails: Sequence[Xfail]) -> Finding:
    found = Finding(check.name, case.name, check.says, difference.kind, difference.detail)
    reason = next((x.reason for x in xfails if x.covers(found)), "")
    headline = f"{check.name}, found in {subject.name}: {difference.kind}: {difference.detail[:300]}\n\n{check.says}"
    with quiet():
        script = case.script(headline)
    return Finding(check.name, case.name, check.says, difference.kind, difference.detail, script, reason)
