"""What runs in a process of its own: the test methods of one class, each plain and then compiled.

A method is compiled as a program would compile it, and called where unittest calls it: ``setUp``, ``tearDown`` and
the decorators that skip or expect a failure are unittest's, and run as they are.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import tempfile
import time
import unittest
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

import jitney
from jitney import events


class Outcome(NamedTuple):
    """How one run of a method went.

    Args:
        kind: passes, skipped, fails, bug, crashes, hangs.
        text: the end of the traceback, or where the process was.
        seconds: how long it took.
        frames: how many were captured, and how many left eager.
    """

    kind: str
    text: str = ""
    seconds: float = 0.0
    frames: tuple[int, int] = (0, 0)


class Begun(NamedTuple):
    """A method is about to run: until its outcome comes, what happens to the process is its doing."""

    method: str
    compiled: bool


class Done(NamedTuple):
    """The outcome of a method."""

    method: str
    compiled: bool
    outcome: Outcome


jitney.compile(lambda: None, backend="eager")()  # imports what compiling needs, before tests replace modules


def test_classes(module: str) -> dict[str, type[unittest.TestCase]]:
    """The test classes of a module of CPython's, by name, as unittest finds them."""
    namespace = vars(importlib.import_module(f"test.{module}"))
    found = {id(v): v for v in namespace.values() if isinstance(v, type) and issubclass(v, unittest.TestCase)}
    return {cls.__qualname__: cls for cls in found.values() if cls.__module__ != "unittest.case"}


def send_methods(module: str, pipe: Connection) -> None:
    """In a process: the names of a module's test methods, by class."""
    load = unittest.defaultTestLoader.getTestCaseNames
    pipe.send({name: list(load(cls)) for name, cls in test_classes(module).items()})


def run_methods(module: str, name: str, methods: Sequence[str], log: str, pipe: Connection) -> None:
    """In a process: run methods of a class, and send ``Begun`` and ``Done`` for each run.

    Args:
        module: without ``test.``, as in ``test_dict``.
        name: of the class.
        methods: which.
        log: the file for what is printed, and for the place of a crash.
        pipe: where to send.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    torch.set_num_threads(1)
    with open(log, "w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        faulthandler.enable(file)
        os.chdir(tempfile.mkdtemp(prefix="jitney-cpython-"))
        importlib.import_module("test.support").use_resources = []  # what asks for much time or memory is skipped
        cls = test_classes(module)[name]
        for method in methods:
            for compiled in (False, True):
                pipe.send(Begun(method, compiled))
                outcome = run_method(cls, method, compiled=compiled)
                pipe.send(Done(method, compiled, outcome))
                if outcome.kind != "passes":
                    break


def run_method(cls: type[unittest.TestCase], method: str, *, compiled: bool) -> Outcome:
    """Run one method in this process."""
    case = cls(method)
    heard: list[Any] = []
    if compiled:
        jitney.reset()

        def call(bound: Callable[[], Any]) -> None:
            jitney.compile(bound, backend="eager")()

        vars(case)["_callTestMethod"] = call  # unittest's private name for this step
    result = unittest.TestResult()
    begin = time.perf_counter()
    with events.listen(heard.append), warnings.catch_warnings():
        unittest.TestSuite([case]).run(result)
    seconds = time.perf_counter() - begin
    captured = sum(isinstance(event, events.FrameCaptured) for event in heard)
    eager = sum(isinstance(event, events.FrameSkipped) for event in heard)
    kind, text = _told(result)
    return Outcome(kind, text, seconds, (captured, eager))


def _told(result: unittest.TestResult) -> tuple[str, str]:
    """What a result says, and why."""
    for _, text in (*result.errors, *result.failures):
        return "bug" if "a bug of jitney's" in text else "fails", text[-3000:]
    if result.unexpectedSuccesses:
        return "fails", "an unexpected success"
    if result.skipped:
        return "skipped", result.skipped[0][1]
    return "passes", ""
