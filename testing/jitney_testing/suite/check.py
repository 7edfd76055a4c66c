"""What a check is: a name, what it means, and cases that each do as in eager, or differ."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jitney.backends import resolve
from jitney_testing.examples import examples_on
from jitney_testing.opinfo.compare import Difference
from jitney_testing.program import Program
from jitney_testing.same import compare, name_of
from jitney_tools.minifier.case import NotMinified
from jitney_tools.minifier.script import naming

Level = Literal["quick", "full"]


@dataclass(frozen=True)
class Subject:
    """The backend under test.

    Args:
        backend: a name, a ``Backend`` or a callable, as ``jitney.compile`` takes it.
        device: where tensors are made.
        options: of the backend.
        level: how much is tried.
        seed: chooses what is sampled.
    """

    backend: Any
    device: str = "cpu"
    options: Mapping[str, Any] = field(default_factory=dict)
    level: Level = "quick"
    seed: int = 0

    @property
    def name(self) -> str:
        """How it is called."""
        return name_of(self.backend)

    @property
    def compiling(self) -> dict[str, Any]:
        """Keywords for ``jitney.compile``, beside the backend."""
        return {"options": dict(self.options)} if self.options else {}

    @functools.cached_property
    def naming(self) -> tuple[str, list[str]]:
        """The backend as a Python expression, and the lines that come before it."""
        try:
            return naming(resolve(self.backend, None, None))
        except NotMinified as error:
            return "backend", [f"# {error.reason}", "backend = ...  # put it here"]

    def differs(self, program: Program) -> Difference | None:
        """What a program does otherwise than in eager."""
        with examples_on(self.device):
            return compare(program, self.backend, **self.compiling)

    def script(self, program: Program, headline: str) -> str:
        """The text of a file that fails alone."""
        backend, lines = self.naming
        return program.runnable([backend], lines, headline, self.device, self.options)


@dataclass(frozen=True)
class Case:
    """One thing that is tried.

    Args:
        name: unique in its check.
        run: what differs from eager; None if nothing does.
        script: ``script(headline)`` is the text of a program that fails alone. Writing it runs nothing.
        smaller: ``smaller(headline, difference)``: the same, made smaller by running parts of the program.
    """

    name: str
    run: Callable[[], Difference | None]
    script: Callable[[str], str]
    smaller: Callable[[str, Difference], str] | None = None


@dataclass(frozen=True)
class Check:
    """Something that every backend must do.

    Args:
        name: ``group.what_is_wrong_if_it_fails``.
        says: what it does, and what it means if it fails.
        cases: what is tried on a subject.
        level: the level from which on it is run.
        budget: seconds after which the quick level begins no further case; 0: all cases are tried.
    """

    name: str
    says: str
    cases: Callable[[Subject], Iterable[Case]]
    level: Level = "quick"
    budget: float = 0.0

    @property
    def group(self) -> str:
        """The first part of its name."""
        return self.name.partition(".")[0]


def told(name: str, says: str, *sources: str, level: Level = "quick", cpu: bool = False) -> Check:
    """A check whose cases are programs.

    Args:
        name, says, level: see ``Check``.
        sources: texts of programs (see ``Program``), without the imports that all have.
        cpu: it can only be tried on the CPU.
    """
    programs = [Program(whole(source)) for source in sources]

    def cases(subject: Subject) -> Iterator[Case]:
        if cpu and subject.device != "cpu":
            return
        for number, program in enumerate(programs, 1):
            yield case_of(str(number), program, subject)

    return Check(name, says, cases, level)


def case_of(name: str, program: Program, subject: Subject) -> Case:
    """A program as a case."""
    return Case(
        name,
        functools.partial(subject.differs, program),
        functools.partial(subject.script, program),
    )


IMPORTS = {
    "F.": "from torch.nn import functional as F",
    "nn.": "from torch import nn",
    "compiled": "from jitney_testing import compiled",
    "example(": "from jitney_testing import example",
    "gc.": "import gc",
    "os.": "import os",
    "threading.": "import threading",
    "weakref.": "import weakref",
    "leaking(": "from jitney_tools.compare.verdict import leaking",
    "checkpoint(": "from torch.utils.checkpoint import checkpoint",
}


def whole(source: str) -> str:
    """A text with the imports that it uses."""
    body = textwrap.dedent(source).strip("\n")
    used = sorted({line for word, line in IMPORTS.items() if word in body} | {"import torch"})
    ours = {IMPORTS["compiled"], IMPORTS["example("]}
    if ours <= set(used):
        used = [*(line for line in used if line not in ours), "from jitney_testing import compiled, example"]
    plain = [line for line in used if line.startswith("import ")]
    others = [line for line in used if not line.startswith("import ")]
    return "\n".join([*plain, *others, "", "", body, ""])
