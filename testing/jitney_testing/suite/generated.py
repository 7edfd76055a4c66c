"""Programs that nobody wrote: graphs of operators, and Python around tensors, drawn by Hypothesis."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import SearchStrategy

from jitney_testing.drawn.graphs import graphs
from jitney_testing.drawn.programs import python_programs
from jitney_testing.opinfo.compare import Difference
from jitney_testing.program import Program
from jitney_testing.same import compare
from jitney_testing.shrink import smaller
from jitney_testing.suite.check import Case, Check, Level, Subject, case_of
from jitney_tools.compare.time_limit import TimeLimit, time_limit

BATCH = 15  # programs of one seed
COUNTS: dict[Level, int] = {"quick": 60, "full": 600}  # at most: the quick level has a time limit, too


def drawn(strategy: SearchStrategy[Program], count: int, seed: int) -> list[Program]:
    """Programs of a strategy, the same ones for the same seed and version of Hypothesis."""
    found: list[Program] = []

    @seeded(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=False,
    )
    @given(strategy)
    def collect(program: Program) -> None:
        found.append(program)

    collect()
    return found


def minimal(program: Program, subject: Subject, difference: Difference, seconds: float = 10.0) -> Program:
    """A failing program with fewer lines that differs in the same way, and that raises in eager only if it did."""

    def raises(found: Difference) -> bool:
        return found.kind == "exception" and "eager NoneType" not in found.detail

    def fails(tried: Program) -> bool:
        try:
            with time_limit(seconds):  # without a line of it, a loop may have no end
                found = compare(tried, subject.backend, **subject.compiling)
        except (Exception, TimeLimit):  # it lacks what it needs to run at all
            return False
        return found is not None and (found.kind, raises(found)) == (difference.kind, raises(difference))

    return smaller(program, fails, seconds)


def _cases(strategy: SearchStrategy[Program], subject: Subject) -> Iterator[Case]:
    for seed in range(subject.seed * 1000, subject.seed * 1000 + COUNTS[subject.level] // BATCH):
        for number, program in enumerate(drawn(strategy, BATCH, seed)):
            name = f"seed {seed}, {number}"
            yield dataclasses.replace(
                case_of(name, program, subject), smaller=functools.partial(_smaller, program, subject)
            )


def _smaller(program: Program, subject: Subject, headline: str, found: Difference) -> str:
    return subject.script(minimal(program, subject, found), headline)


def _check(name: str, says: str, strategy: SearchStrategy[Any], budget: float) -> Check:
    return Check(name, says, functools.partial(_cases, strategy), budget=budget)


CHECKS = (
    _check(
        "graphs.forward",
        "Generated graphs of operators, without gradients: dtypes, shapes, layouts, views, writes, random numbers.",
        graphs(train=False),
        7.0,
    ),
    _check("graphs.training", "Generated graphs whose arguments may require grad.", graphs(train=True), 7.0),
    _check(
        "programs.python",
        "Generated Python programs: control flow, side effects, exceptions, graph breaks, around small graphs.",
        python_programs(),
        6.0,
    ),
)
