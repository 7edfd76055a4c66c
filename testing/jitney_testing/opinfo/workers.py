"""Operators spread over processes: one that dies or hangs costs its operator, not the run."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from jitney.config import config
from jitney_testing.opinfo.case import Failure, Outcome, try_case
from jitney_testing.opinfo.samples import Case, Choice, calls


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


Task = tuple[str, str]  # operator, dtype


def run_task(task: Task, plan: Plan) -> Iterator[Outcome]:
    """The outcomes of one operator with one dtype, in this process."""
    for call in calls(*task, plan.choice):
        yield try_case(call, plan.backend, **plan.options)


def run_tasks(tasks: Sequence[Task], plan: Plan, jobs: int) -> Iterator[tuple[Task, Outcome | None]]:
    """Outcomes as they come; None when a task has ended.

    Closing the iterator ends the processes. A process that dies gives its task an outcome that failed, and is replaced.
    """
    waiting = list(reversed(tasks))
    workers = [_Worker(plan) for _ in range(max(1, min(jobs, len(tasks))))]
    try:
        for worker in workers:
            worker.take(waiting)
        while any(worker.task for worker in workers):
            ready = wait([w.pipe for w in workers if w.task], timeout=1.0)
            for worker in workers:
                if worker.task and worker.pipe in ready:
                    yield from worker.receive()
                elif worker.task and time.monotonic() - worker.heard > plan.patience:
                    yield from worker.give_up(f"no outcome for {plan.patience:.0f} s")
                if not worker.task:
                    worker.take(waiting)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process and the task that it has."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.task: Task | None = None
        self.last = "before its first outcome"
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, self.plan), daemon=True)
        self.process.start()
        other.close()
        self.heard = time.monotonic()

    def take(self, waiting: list[Task]) -> None:
        """Hand over the next task, if there is one."""
        if waiting:
            self.task = waiting.pop()
            self.last = "before its first outcome"
            self.heard = time.monotonic()
            self.pipe.send(self.task)

    def receive(self) -> Iterator[tuple[Task, Outcome | None]]:
        """What the process has sent."""
        assert self.task is not None
        self.heard = time.monotonic()
        try:
            message = self.pipe.recv()
        except EOFError:
            self.process.join()
            yield from self.give_up(f"its process ended with exit code {self.process.exitcode}")
            return
        if isinstance(message, Outcome):
            self.last = f"after {message.case}"
            yield self.task, message
        else:
            task, self.task = self.task, None
            if message is not None:
                yield task, _lost(task, message)
            yield task, None

    def give_up(self, reason: str) -> Iterator[tuple[Task, Outcome | None]]:
        """The task fails; another process takes over."""
        assert self.task is not None
        task, self.task = self.task, None
        self.end()
        self._start()
        yield task, _lost(task, f"{reason}, {self.last}")
        yield task, None

    def end(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _lost(task: Task, reason: str) -> Outcome:
    case = Case(*task, "call", -1)
    return Outcome(case, False, None, False, Failure("forward", "lost", reason))


def _serve(pipe: Connection, plan: Plan) -> None:
    """A worker's process: tasks in, outcomes out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    torch.set_num_threads(1)
    config.verify = True
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        problem = None
        try:
            for outcome in run_task(task, plan):
                pipe.send(outcome)
                if outcome.failure is not None and "CUDA error" in outcome.failure.detail:
                    return  # this process's context answers nothing any more
        except Exception as error:
            problem = f"{type(error).__name__} while making samples: {error}"[:400]
        pipe.send(problem)
