"""The suite in a process of its own: a backend that takes its process down costs one case, not the run."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from jitney.errors import JitneyError
from jitney_testing.conformance import PATIENCE, Say, finding, headline, prepared, run_check
from jitney_testing.opinfo.compare import Difference
from jitney_testing.report import Report, Result, Xfail, read_xfails, stale_xfails
from jitney_testing.suite.check import Case, Check, Level, Subject

SILENCE = 3 * PATIENCE  # seconds without a word (a case, and making it smaller): then the process counts as hanging
PHASE = "conformance"


@dataclass(frozen=True)
class Plan:
    """What another process needs to know: arguments as for ``run_conformance``; a function that finds the backend."""

    backend: Callable[[], Any]
    level: Level = "quick"
    device: str = "cpu"
    options: Mapping[str, Any] | None = None
    xfails: tuple[Xfail, ...] = ()
    seed: int = 0
    only: str = ""

    def prepared(self) -> tuple[Subject, list[Check]]:
        """What is tried, and the checks."""
        return prepared(self.backend(), self.level, self.device, self.options, self.seed, self.only)


@dataclass(frozen=True)
class Begun:
    """A case begins: its check's result so far, its name, and its program, to be shown if this is the last word."""

    result: Result
    case: str
    script: str


def run_apart(
    backend: Callable[[], Any],
    level: Level = "quick",
    *,
    xfails: str | Path | None = None,
    say: Say | None = None,
    **given: Any,
) -> Report:
    """As ``run_conformance``, in another process, which is replaced when it dies or hangs.

    Args:
        backend: finds it, in each process; can be pickled.
        level, xfails, say: as there.
        given: its other arguments.
    """
    plan = Plan(backend, level, xfails=tuple(read_xfails(xfails)) if xfails is not None else (), **given)
    subject, chosen = plan.prepared()
    run = _Run(plan, subject, chosen, say, Report(subject.name, plan.device, level, plan.seed))
    try:
        while run.left:
            run.go_on()
    except KeyboardInterrupt:
        run.report.interrupted = True
    run.report.stale = stale_xfails(run.report.results, plan.xfails)
    return run.report


@dataclass
class _Run:
    """A run, over all its processes.

    Args:
        plan, subject, chosen, say: what is run.
        report: what is known.
        last: the case that has begun and not ended.
    """

    plan: Plan
    subject: Subject
    chosen: Sequence[Check]
    say: Say | None
    report: Report
    last: Begun | None = None
    finished: set[str] = field(default_factory=set)

    @property
    def left(self) -> list[Check]:
        """Checks that have not ended."""
        return [check for check in self.chosen if check.name not in self.finished]

    def go_on(self) -> None:
        """A process, until it has finished, or is no more."""
        names = [check.name for check in self.left]
        known = self.report.results[-1] if self.report.results else None
        context = multiprocessing.get_context("spawn")
        pipe, other = context.Pipe()
        process = context.Process(target=_serve, args=(other, self.plan, names, known), daemon=True)
        process.start()
        other.close()
        self.last, heard = None, False
        try:
            while self.left:
                if not pipe.poll(SILENCE):
                    self._lost(Difference("hangs", f"nothing was heard of its process for {SILENCE:.0f} s"))
                    return
                self._hear(pipe.recv())
                heard = True
        except (EOFError, OSError) as error:
            process.join()
            if not heard:
                raise JitneyError(f"{_end(process.exitcode)} before it began", phase=PHASE) from error
            self._lost(Difference("dies", _end(process.exitcode)))
        finally:
            process.kill()
            process.join()
            pipe.close()

    def _hear(self, message: Begun | Result) -> None:
        """A case has begun, or a check has ended."""
        self.last = message if isinstance(message, Begun) else None
        result = message.result if isinstance(message, Begun) else message
        results = self.report.results
        if results and results[-1].name == result.name:
            results[-1] = result
        else:
            results.append(result)
        if self.last is None:
            self.finished.add(result.name)
        if self.say is not None:
            case = None if self.last is None else Case(self.last.case, lambda: None, str)
            self.say(self._check(result.name), case, result)

    def _lost(self, found: Difference) -> None:
        """The process is no more: that is a finding of the case that it was at."""
        if self.last is None:  # between two cases: the check that comes next is given up
            check = self.left[0]
            case, script, result = "none", "", Result(check.name, check.says)
            self.finished.add(check.name)
            if self.report.results and self.report.results[-1].name == check.name:
                result = self.report.results.pop()
            self.report.results.append(result)
        else:
            result, case, script = self.last.result, self.last.case, self.last.script
            check = self._check(result.name)
            result.tried += 1
            result.cases.append(case)
        script = script.replace(_PLACE, headline(check, self.subject, found))
        result.findings.append(finding(check, case, found, script, self.plan.xfails))

    def _check(self, name: str) -> Check:
        return next(check for check in self.chosen if check.name == name)


_PLACE = "@ what is wrong @"


def _end(code: int | None) -> str:
    """How a process ended."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with exit status {code}"


def _serve(pipe: Connection, plan: Plan, names: Sequence[str], known: Result | None) -> None:
    """The other process: checks in order, the first of them from where ``known`` ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    subject, chosen = plan.prepared()

    def say(check: Check, case: Case | None, result: Result) -> None:
        pipe.send(Begun(result, case.name, case.script(_PLACE)) if case is not None else result)

    for check in (check for check in chosen if check.name in names):
        begun = known if known is not None and known.name == check.name else None
        run_check(check, subject, plan.xfails, begun, say)
