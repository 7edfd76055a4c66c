"""Counts over many outcomes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from jitney_testing.opinfo.case import Outcome


@dataclass
class Tally:
    """Counts of one dtype and variant.

    Args:
        forward, backward: cases that eager passes.
        forward_passed, backward_passed: those in which compiled does the same.
        exact: passed to the last bit.
        refereed: passed since float64 is no further away than from eager (``jitney_testing.opinfo.referee``).
        traced: cases in which a backend was given a forward or inference graph.
        traced_backward: cases in which it was given a backward graph.
        whole: traced, without a graph break or a kept graph.
    """

    cases: int = 0
    forward: int = 0
    forward_passed: int = 0
    backward: int = 0
    backward_passed: int = 0
    exact: int = 0
    refereed: int = 0
    traced: int = 0
    traced_backward: int = 0
    whole: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    breaks: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self.cases += 1
        if outcome.forward is None:
            return
        coverage = outcome.coverage
        traced = bool({"forward", "inference"} & set(coverage.halves))
        self.forward += 1
        self.forward_passed += outcome.forward
        self.backward += outcome.backward is not None
        self.backward_passed += bool(outcome.backward)
        self.exact += outcome.exact and outcome.failure is None
        self.refereed += outcome.refereed and outcome.failure is None
        self.traced += traced
        self.traced_backward += "backward" in coverage.halves
        self.whole += traced and not coverage.kept and not coverage.breaks
        self.kept.update(map(plain, set(coverage.kept)))
        self.breaks.update(map(plain, set(coverage.breaks)))
        if outcome.failure is not None:
            self.failures[f"{outcome.failure.stage}: {outcome.failure.kind}"] += 1


def tallies(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], Tally]:
    """By dtype and variant, in the order in which they come."""
    found: dict[tuple[str, str], Tally] = {}
    for outcome in outcomes:
        found.setdefault((outcome.case.dtype, outcome.case.variant), Tally()).add(outcome)
    return found


def percent(part: int, whole: int) -> str:
    """``99.8%``, rounded down; a dash without a whole."""
    return f"{int(part / whole * 10_000) / 100:.2f}%" if whole else "-"


def plain(reason: str) -> str:
    """A reason without the numbers and addresses that differ from sample to sample."""
    return re.sub(r"0x[0-9a-f]+|\b\d+(\.\d+)?\b", "N", reason)[:160]
