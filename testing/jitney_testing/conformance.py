"""Running the suite on a backend."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from jitney.api import reset
from jitney.backends import resolve
from jitney.errors import InvalidOption
from jitney_testing.opinfo.compare import Difference
from jitney_testing.report import Finding, Report, Result, Xfail, read_xfails, stale_xfails
from jitney_testing.suite.check import Case, Check, Level, Subject
from jitney_testing.suite.table import checks
from jitney_tools.compare.time_limit import TimeLimit, time_limit

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

    Ctrl-C ends the run; the report has what was found by then. All runs in this process: a backend that takes it down
    ends the run, too (``jitney conformance`` gives the suite a process of its own).

    Args:
        backend: a name, a ``Backend`` or a callable, as ``jitney.compile`` takes it.
        level: ``quick`` takes about a minute, ``full`` some more: all operators of torch's database, hundreds of
            generated programs, models of ``transformers``.
        device: where tensors are made: ``cpu``, ``cuda``.
        options: of the backend.
        xfails: failures that are expected, or the TOML file that lists them (``read_xfails``).
        seed: chooses what is sampled and generated.
        only: a regular expression for the beginning of the names of checks.
        say: called before each case, and after each check (without a case).

    Raises:
        BackendNotFound, PluginError, InvalidOption: see ``jitney.errors``; also for a device that is not there, and if
            there is no check of such a name.
    """
    subject, chosen = prepared(backend, level, device, options, seed, only)
    expected = read_xfails(xfails) if isinstance(xfails, (str, Path)) else list(xfails)
    report = Report(subject.name, device, level, seed)
    try:
        for check in chosen:
            report.results.append(Result(check.name, check.says))
            run_check(check, subject, expected, report.results[-1], say)
    except KeyboardInterrupt:
        report.interrupted = True
    report.stale = stale_xfails(report.results, expected)
    return report


def prepared(
    backend: Any, level: Level, device: str, options: Mapping[str, Any] | None, seed: int, only: str
) -> tuple[Subject, list[Check]]:
    """What is tried, and the checks. Raises what ``run_conformance`` does."""
    resolve(backend, options, None)
    try:
        chosen = checks(level, only)
    except re.error as error:
        raise InvalidOption(f"only={only!r} is no regular expression: {error}") from error
    if not chosen:
        raise InvalidOption(f"no check of level {level} has a name that begins with {only!r}")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: this torch was built without CUDA
        raise InvalidOption(f"device={device!r}: {str(error).partition(chr(10))[0]}") from error
    return Subject(backend, device, dict(options or {}), level, seed), chosen


def run_check(
    check: Check,
    subject: Subject,
    xfails: Sequence[Xfail] = (),
    result: Result | None = None,
    say: Say | None = None,
    most: int = MOST,
) -> Result:
    """The cases of one check, until ``most`` findings are not expected.

    ``result`` is filled as they come; cases that it has already are left out.
    """
    found = result or Result(check.name, check.says)
    begin, before = time.monotonic(), found.seconds
    done = set(found.cases)
    for case in check.cases(subject):
        if check.budget and subject.level == "quick" and time.monotonic() - begin > check.budget:
            break
        if case.name in done:
            continue
        if len(found.unexpected) >= most:
            break
        if say is not None:
            say(check, case, found)
        difference = run_case(case)
        found.tried += 1
        found.cases.append(case.name)
        found.seconds = before + time.monotonic() - begin
        if difference is not None:
            found.findings.append(_finding(check, case, subject, difference, xfails))
    else:
        found.complete = True
    if say is not None:
        say(check, None, found)
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without warnings, what torch logs of stand-ins that something could not be tried on, and what threads raise."""
    loud = logging.getLogger("torch._subclasses.fake_tensor")
    level = loud.level
    hook = threading.excepthook
    loud.setLevel(logging.CRITICAL)
    threading.excepthook = lambda raised: None  # a thread that ends too early is seen by what it has not done
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        loud.setLevel(level)
        threading.excepthook = hook


def run_case(case: Case, seconds: float = PATIENCE) -> Difference | None:
    """What is wrong; that it hangs, raises or wants to leave Python is something wrong, too."""
    try:
        with time_limit(seconds), quiet():
            return case.run()
    except TimeLimit as limit:
        return Difference("hangs", str(limit))
    except (Exception, SystemExit) as error:
        return Difference("raises", f"{type(error).__name__}: {error}")
    finally:
        reset()


def finding(check: Check, case: str, found: Difference, script: str, xfails: Sequence[Xfail]) -> Finding:
    """A finding, with the reason for which it is expected, if it is."""
    made = Finding(check.name, case, check.says, found.kind, found.detail, script)
    reason = next((x.reason for x in xfails if x.covers(made)), "")
    return dataclasses.replace(made, expected=reason)


def headline(check: Check, subject: Subject, found: Difference) -> str:
    """What the program of a finding begins with."""
    return f"{check.name}, found in {subject.name}: {found.kind}: {found.detail[:300]}\n\n{check.says}"


def _finding(check: Check, case: Case, subject: Subject, found: Difference, xfails: Sequence[Xfail]) -> Finding:
    said = headline(check, subject, found)
    script = case.script(said)
    if case.smaller is not None:
        with contextlib.suppress(Exception, SystemExit, TimeLimit), time_limit(PATIENCE), quiet():
            script = case.smaller(said, found)
    return finding(check, case.name, found, script, xfails)
