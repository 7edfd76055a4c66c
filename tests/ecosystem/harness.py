"""Programs as the users of a library write them, and what is looked at: numbers, graphs, breaks, recompiles, warnings.

A program is a function of a ``Compiler``. It returns tensors and numbers (``Outcome.results``), which are to be those
of the program without compilation, and a call in steady state (``Outcome.step``), which is measured.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import os
import random
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import jitney

MEASURED = os.environ.get("JITNEY_ECOSYSTEM_MEASURED") == "1"  # models as large as users have them on a CPU
FOLDER = Path(__file__).parent / "library_programs"


def size(tested: Any, measured: Any) -> Any:
    """A size of a program: small in tests."""
    return measured if MEASURED else tested


@dataclass
class Compiler:
    """What a program compiles with: jitney, torch.compile, or nothing."""

    name: str  # "eager", "jitney", "torch.compile"

    def __call__(self, target: Any, **options: Any) -> Any:
        """``jitney.compile(target)`` or its like."""
        if self.name == "eager":
            return target
        return jitney.compile(target, **options) if self.name == "jitney" else torch.compile(target, **options)

    def in_place(self, module: torch.nn.Module, **options: Any) -> torch.nn.Module:
        """Compile the calls of a module that stays what it is."""
        if self.name == "jitney":
            jitney.compile(module, inplace=True, **options)
        elif self.name == "torch.compile":
            module.compile(**options)
        return module

    @property
    def backend(self) -> str:
        """Its name among torch.compile's backends."""
        return "jitney_llvm_cpu" if self.name == "jitney" else "inductor"

    def __bool__(self) -> bool:
        return self.name != "eager"


@dataclass
class Outcome:
    """What a program has come to."""

    results: Any
    step: Callable[[], Any] | None = None


@dataclass
class Program:
    """A program, and what it is to show.

    Args:
        libraries: distributions that it uses, the one it is about first.
        run: the program.
        breaks: graph breaks while it is compiled, at most.
        recompiles: at most; sizes that change are one.
        uncompiled: there is nothing to compile in it, or a tracer sees the original.
        warns: a part of the text of a warning that is to come.
        tolerance: relative and absolute, of numbers.
    """

    libraries: tuple[str, ...]
    run: Callable[[Compiler], Outcome]
    breaks: int = 0
    recompiles: int = 0
    uncompiled: bool = False
    warns: str = ""
    tolerance: float = 1e-4

    @property
    def name(self) -> str:
        return self.run.__name__


_programs: dict[str, Program] = {}


def program(*libraries: str, **facts: Any) -> Callable[[Callable[[Compiler], Outcome]], Callable[[Compiler], Outcome]]:
    """Name a function a program; arguments are those of ``Program``."""

    def register(run: Callable[[Compiler], Outcome]) -> Callable[[Compiler], Outcome]:
        _programs[run.__name__] = Program(libraries, run, **facts)
        return run

    return register


def _complete_torchvision() -> None:
    """A CPU build of torch cannot load the operators of PyPI's torchvision, whose Python asks for their names."""
    try:
        torch.ops.torchvision.nms  # noqa: B018
    except (AttributeError, RuntimeError):
        import importlib.util

        found = importlib.util.find_spec("torchvision")
        library = Path(found.origin).parent / "_C.so" if found and found.origin else None
        try:
            torch.ops.load_library(library) if library else None
        except OSError:
            for operator in ("nms", "qnms"):
                torch.library.define(
                    f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )


_complete_torchvision()  # before anything imports it


def programs() -> dict[str, Program]:
    """All programs, by name."""
    for file in sorted(FOLDER.glob("*.py")):
        importlib.import_module(f"library_programs.{file.stem}")
    return dict(_programs)


def in_processes(count: int, function: Callable[[Compiler], Any], compiler: Compiler) -> list[Any]:
    """What a function of a program's module returns in each of so many processes, which are the ranks of one group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = (
        "import sys, harness, importlib, torch; harness.programs(); module, name, compiler, path = sys.argv[1:]; "
        "found = getattr(importlib.import_module(module), name)(harness.Compiler(compiler)); torch.save(found, path)"
    )
    with tempfile.TemporaryDirectory() as folder:
        given = [function.__module__, function.__name__, compiler.name]
        running = [
            subprocess.Popen(
                [sys.executable, "-c", start, *given, f"{folder}/{rank}"],
                cwd=FOLDER.parent,
                env={**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0",
                     "LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]  # fmt: skip
        told = [one.communicate(timeout=300)[1] for one in running]
        assert [one.returncode for one in running] == [0] * count, "\n".join(told)
        return [torch.load(f"{folder}/{rank}") for rank in range(count)]


@dataclass
class Observed:
    """One run of a program."""

    outcome: Outcome
    profile: jitney.CompileProfiler
    warnings: list[str] = field(default_factory=list)

    def ours(self) -> list[str]:
        """Warnings of jitney's."""
        return [text for text in self.warnings if "jitney" in text]


def observe(program: Program, compiler: Compiler) -> Observed:
    """Run a program from the same random numbers as ever."""
    jitney.reset()
    torch.set_num_threads(1)  # Lightning sets it
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    with warnings.catch_warnings(record=True) as caught, jitney.CompileProfiler() as profile, _quiet():
        warnings.simplefilter("always")
        outcome = program.run(compiler)
    return Observed(outcome, profile, [f"{w.filename}:{w.lineno}: {w.category.__name__}: {w.message}" for w in caught])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    if os.environ.get("LOUD"):
        yield
        return
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def difference(expected: Any, found: Any, tolerance: float) -> str:
    """Where two results differ, in words; empty if they do not."""
    ours, spec = pytree.tree_flatten_with_path(found)
    theirs, other = pytree.tree_flatten_with_path(expected)
    if spec != other:
        return f"{other} is {spec}"
    told = []
    for (path, a), (_, b) in zip(theirs, ours, strict=True):
        try:
            torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance, equal_nan=True)
        except AssertionError as error:
            told.append(f"{pytree.keystr(path)}: {error}")
        except (TypeError, ValueError):
            if a != b:
                told.append(f"{pytree.keystr(path)}: {a!r} is {b!r}")
    return "\n".join(told)


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of a module's parameters and buffers."""
    return {name: copy.deepcopy(value.detach()) for name, value in module.state_dict().items()}


def trained(compiler: Compiler, model: torch.nn.Module, make: Any, loss_of: Any, steps: int = 3) -> Outcome:
    """A few steps of SGD: losses, and the parameters after them."""
    compiled = compiler(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        inputs = make()
        loss = loss_of(compiled(*inputs))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return Outcome((losses, state_of(model)), lambda: loss_of(compiled(*inputs)).backward())
