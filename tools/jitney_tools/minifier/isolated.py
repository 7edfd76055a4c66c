"""Each try in a process of its own, for backends that take the process down, or hang where Python cannot interrupt.

The processes are forked from one that has imported torch and jitney and done nothing yet, so that a try costs little.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from jitney.config import config
from jitney_tools.compare.verdict import Fault, Terms
from jitney_tools.minifier.case import Case
from jitney_tools.minifier.script import load, write_case

GRACE = 20.0  # seconds for imports and captures, beside what a run may take


class Isolated:
    """Looks for faults of cases, as ``Case.fault`` does.

    Use as a context manager: the programs that are tried are in a temporary folder.
    """

    def __init__(self) -> None:
        self._context: Any = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, "jitney_tools.minifier.forkserver_preload"])
        with _without_interrupts():
            forkserver.ensure_running()
        self._folder = tempfile.TemporaryDirectory(prefix="jitney_minifier_")

    def __enter__(self) -> Isolated:
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def fault(self, case: Case, terms: Terms) -> Fault | None:
        """What is wrong with a case; ``dies`` if its process did."""
        path = write_case(case, None, Path(self._folder.name) / "tried.py")
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_try, args=(str(path), theirs, terms, config.base_dir))
        process.start()
        theirs.close()
        try:
            return self._answer(process, ours, terms)
        finally:
            ours.close()
            if process.is_alive():
                process.kill()
            process.join()

    def _answer(self, process: Any, ours: Connection, terms: Terms) -> Fault | None:
        limit = terms.seconds + GRACE if terms.seconds else None
        if not ours.poll(limit):
            return Fault("hangs", "results", f"it took longer than {terms.seconds:g} s")
        try:
            said = ours.recv()
        except EOFError:  # it died before it could say anything
            process.join()
            return Fault("dies", "results", _name_of(process.exitcode))
        return None if said is None else Fault(*said)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started in the block do not hear Ctrl-C: it is for the one that started them, which then ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _name_of(code: int) -> str:
    if code >= 0:
        return f"the process exited with status {code}"
    return f"the process was killed by {signal.Signals(-code).name}"


def _try(path: str, answer: Connection, terms: Terms, base_dir: str) -> None:
    """In the process of its own."""
    config.base_dir = base_dir
    case, _ = load(Path(path))
    fault = case.fault(terms)
    answer.send(None if fault is None else (fault.kind, fault.place, fault.reason))
    answer.close()
