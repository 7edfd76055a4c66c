"""Classes spread over processes: one that crashes or hangs costs one method, and the rest of its class goes on."""

from __future__ import annotations

import multiprocessing
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from cpython.worker import Begun, Done, Outcome, run_methods, send_methods

START = 60.0  # seconds for a process to begin its first method
PLAIN = 60.0  # seconds for a method as it is
TIMES, SECONDS = 10.0, 20.0  # compiled it has so many times as long, and so many seconds more


@dataclass(frozen=True)
class Part:
    """Methods of one class, which one process runs one after the other."""

    module: str
    name: str
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """A method's two runs; ``compiled`` is None where the plain one did not pass."""

    module: str
    method: str
    plain: Outcome
    compiled: Outcome | None


def server() -> multiprocessing.context.ForkServerContext:
    """What forks processes that have imported torch and the compiler."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cpython.worker", "jitney_eager"])
    return context


def parts_of(modules: Sequence[str], pattern: str, most: int = 20) -> list[Part]:
    """The methods ``Class.method`` that contain the pattern, at most so many to a process."""
    found = []
    context = server()
    for module in modules:
        pipe, other = context.Pipe(duplex=False)
        process = context.Process(target=send_methods, args=(module, other))
        process.start()
        other.close()
        for name, methods in pipe.recv().items():
            some = [method for method in methods if re.search(pattern, f"{name}.{method}")]
            found += [Part(module, name, tuple(some[i : i + most])) for i in range(0, len(some), most)]
        process.join()
    return found


def run_parts(parts: Sequence[Part], jobs: int) -> Iterator[tuple[Part, Result]]:
    """Results as they come. Closing the iterator ends the processes."""
    waiting, running = list(reversed(parts)), list[_Process]()
    with tempfile.TemporaryDirectory(prefix="jitney-cpython-") as folder:
        try:
            while waiting or running:
                while waiting and len(running) < max(1, jobs):
                    running.append(_Process(waiting.pop(), Path(folder)))
                ready = wait([process.pipe for process in running], timeout=0.5)
                for process in running[:]:
                    if process.pipe in ready:
                        result = process.receive()
                    elif time.monotonic() > process.until:
                        result = process.lost("hangs", f"no end within {process.patience:.0f} s")
                    else:
                        continue
                    if result is not None:
                        yield process.part, result
                    if process.ended:
                        running.remove(process)
                        if process.left:
                            waiting.append(Part(process.part.module, process.part.name, process.left))
        finally:
            for process in running:
                process.end()


class _Process:
    """A process and the methods that it still has to run."""

    def __init__(self, part: Part, folder: Path) -> None:
        self.part, self.left, self.ended = part, part.methods, False
        self.log = folder / f"{part.name}-{time.monotonic_ns()}"
        self.plain = Outcome("fails", "not run")
        self.compiled = False
        context = server()
        self.pipe, other = context.Pipe(duplex=False)
        args = (part.module, part.name, part.methods, str(self.log), other)
        self.process = context.Process(target=run_methods, args=args, daemon=True)
        self.process.start()
        other.close()
        self._grant(START)

    def _grant(self, seconds: float) -> None:
        self.patience = seconds
        self.until = time.monotonic() + seconds

    def receive(self) -> Result | None:
        """What the process has sent: a method's result, where it is complete."""
        try:
            message = self.pipe.recv()
        except EOFError:
            if not self.left:
                self.end()
                return None
            self.process.join()
            code = self.process.exitcode or 0
            return self.lost("crashes", signal.Signals(-code).name if code < 0 else f"exit code {code}")
        if isinstance(message, Begun):
            self.compiled = message.compiled
            self._grant(TIMES * self.plain.seconds + SECONDS if self.compiled else PLAIN)
            return None
        assert isinstance(message, Done)
        self._grant(START)
        if message.compiled:
            return self._complete(self.plain, message.outcome)
        self.plain = message.outcome
        return None if self.plain.kind == "passes" else self._complete(self.plain, None)

    def lost(self, kind: str, reason: str) -> Result:
        """The method that runs has ended the process, or is ended with it."""
        self.end()
        outcome = Outcome(kind, f"{reason}\n{self.log.read_text(errors='replace')[-2000:]}")
        return self._complete(self.plain, outcome) if self.compiled else self._complete(outcome, None)

    def _complete(self, plain: Outcome, compiled: Outcome | None) -> Result:
        method, *rest = self.left
        self.left, self.compiled = tuple(rest), False
        return Result(self.part.module, f"{self.part.name}.{method}", plain, compiled)

    def end(self) -> None:
        """Stop the process."""
        self.ended = True
        self.process.kill()
        self.process.join()
        self.pipe.close()
