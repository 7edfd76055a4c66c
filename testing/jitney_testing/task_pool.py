"""Tasks spread over processes: one that ends its process or hangs costs its task, not the run."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Generic, Protocol, TypeVar

import torch

from jitney.config import config

T = TypeVar("T")  # a task
Given = TypeVar("Given", contravariant=True)


class HasCase(Protocol):
    """What a task comes to: something about a case, whose text says which one."""

    @property
    def case(self) -> object:
        """Has a text."""


Result = TypeVar("Result", bound=HasCase)
Returned = TypeVar("Returned", bound=HasCase, covariant=True)


class Work(Protocol[Given, Returned]):
    """What is done with each task. Can be pickled, as tasks and outcomes can."""

    @property
    def patience(self) -> float:
        """Seconds without an outcome after which a process counts as hanging."""

    def run(self, task: Given) -> Iterator[Returned]:
        """Runs in a worker's process, which it ends by ``SystemExit``, to be replaced."""
        ...

    def lost(self, task: Given, reason: str) -> Returned:
        """The outcome of a task whose process is no more, or that raised."""
        ...


@dataclass(frozen=True)
class _Sent(Generic[Result]):
    """A worker's message: an outcome, or that the task has ended, and by which error if by one."""

    outcome: Result | None = None
    problem: str | None = None


def run_tasks(tasks: Sequence[T], work: Work[T, Result], jobs: int) -> Iterator[tuple[T, Result | None]]:
    """Outcomes as they come; None when a task has ended.

    Closing the iterator ends the processes. A process that dies gives its task an outcome that failed, and is replaced.
    """
    waiting = list(reversed(tasks))
    workers = [_Worker(work) for _ in range(max(1, min(jobs, len(tasks))))]
    try:
        for worker in workers:
            worker.take(waiting)
        while any(worker.busy for worker in workers):
            ready = wait([w.pipe for w in workers if w.busy], timeout=1.0)
            for worker in workers:
                if worker.busy and worker.pipe in ready:
                    yield from worker.receive()
                elif worker.busy and time.monotonic() - worker.heard > work.patience:
                    yield from worker.give_up(f"no outcome for {work.patience:.0f} s")
                if not worker.busy:
                    worker.take(waiting)
    finally:
        for worker in workers:
            worker.end()


class _Worker(Generic[T, Result]):
    """A process and the task that it has."""

    def __init__(self, work: Work[T, Result]) -> None:
        self.work = work
        self.task: T | None = None
        self.last = "before its first outcome"
        self._start()

    @property
    def busy(self) -> bool:
        """Has it a task?"""
        return self.task is not None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, self.work), daemon=True)
        self.process.start()
        other.close()
        self.heard = time.monotonic()

    def take(self, waiting: list[T]) -> None:
        """Hand over the next task, if there is one."""
        if waiting:
            self.task = waiting.pop()
            self.last = "before its first outcome"
            self.heard = time.monotonic()
            self.pipe.send(self.task)

    def receive(self) -> Iterator[tuple[T, Result | None]]:
        """What the process has sent."""
        assert self.task is not None
        self.heard = time.monotonic()
        try:
            message: _Sent[Result] = self.pipe.recv()
        except EOFError:
            self.process.join()
            yield from self.give_up(f"its process ended with exit code {self.process.exitcode}")
            return
        if message.outcome is not None:
            self.last = f"after {message.outcome.case}"
            yield self.task, message.outcome
        else:
            task, self.task = self.task, None
            if message.problem is not None:
                yield task, self.work.lost(task, message.problem)
            yield task, None

    def give_up(self, reason: str) -> Iterator[tuple[T, Result | None]]:
        """The task fails; another process takes over."""
        assert self.task is not None
        task, self.task = self.task, None
        self.end()
        self._start()
        yield task, self.work.lost(task, f"{reason}, {self.last}")
        yield task, None

    def end(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, work: Work[T, Result]) -> None:
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
            for outcome in work.run(task):
                pipe.send(_Sent(outcome))
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:400]
        pipe.send(_Sent(problem=problem))
