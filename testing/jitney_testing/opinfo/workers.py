"""An operator's cases as a task that worker processes run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jitney_testing.opinfo.case import Failure, Outcome, try_case
from jitney_testing.opinfo.samples import Case, Choice, calls

Task = tuple[str, str]  # operator, dtype


@dataclass(frozen=True)
class Plan:
    """What to run.

    Args:
        backend: its name.
        choice: which cases of each operator.
        options: for ``jitney.compile``.
        patience: seconds without an outcome after which a process counts as hanging.
    """

    backend: str
    choice: Choice = Choice()  # noqa: RUF009 (frozen)
    options: dict[str, Any] = field(default_factory=dict)
    patience: float = 300.0

    def run(self, task: Task) -> Iterator[Outcome]:
        """The outcomes of one operator with one dtype, in this process."""
        for call in calls(*task, self.choice):
            outcome = try_case(call, self.backend, **self.options)
            yield outcome
            if outcome.failure is not None and "CUDA error" in outcome.failure.detail:
                raise SystemExit  # this process's context answers nothing any more

    def lost(self, task: Task, reason: str) -> Outcome:
        """The outcome of an operator whose process is no more."""
        return Outcome(Case(*task, "call", -1), False, None, False, Failure("forward", "lost", reason))
