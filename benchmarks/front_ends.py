"""What is compared: eager, torch.compile and jitney, each by one name, and what they say of their work.

`eager` is the program itself, `inductor` is torch.compile, `torch:BACKEND` is torch.compile with another backend, and
any other name is a backend of jitney (`jitney:eager` for those named like one of these). Nothing is imported before
it is asked for: imports are part of a first call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

REFERENCE, PEER = "eager", "inductor"
Target = Callable[..., Any]


@dataclass
class Work:
    """What a front end did meanwhile.

    Args:
        graphs: compiled, forward and backward of one counting once.
        kernels: that a kernel backend of jitney's made of them.
        whole: operators that it ran one by one instead.
        reasons: why, for each of these, with its name.
        left: why there was a graph break, or why something ran eagerly.
    """

    graphs: int = 0
    kernels: int = 0
    whole: int = 0
    reasons: list[tuple[str, str]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FrontEnd:
    """Base: the program as it is."""

    name: str

    def compile(self, target: Target, dynamic: bool | None = None) -> Target:
        return target

    def reset(self) -> None:
        """Forget everything compiled."""

    @contextlib.contextmanager
    def watch(self) -> Iterator[Work]:
        """What happens in the block; complete when it ends."""
        yield Work()


@dataclass(frozen=True)
class Torch(FrontEnd):
    backend: str
    mode: str | None = None

    def compile(self, target: Target, dynamic: bool | None = None) -> Target:
        compiled: Target = torch.compile(target, backend=self.backend, dynamic=dynamic, mode=self.mode)
        return compiled

    def reset(self) -> None:
        torch._dynamo.reset()

    @contextlib.contextmanager
    def watch(self) -> Iterator[Work]:
        from torch._dynamo.utils import counters

        work, before = Work(), counters["stats"]["unique_graphs"]
        breaks = set(counters["graph_break"])
        yield work
        work.graphs = counters["stats"]["unique_graphs"] - before
        work.left = sorted(_first_line(reason) for reason in set(counters["graph_break"]) - breaks)


@dataclass(frozen=True)
class Jitney(FrontEnd):
    backend: str
    mode: str | None = None

    def compile(self, target: Target, dynamic: bool | None = None) -> Target:
        import jitney

        return jitney.compile(target, backend=self.backend, dynamic=dynamic, mode=self.mode)

    def reset(self) -> None:
        import jitney

        jitney.reset()

    @contextlib.contextmanager
    def watch(self) -> Iterator[Work]:
        from jitney import events

        work = Work()

        def listener(event: Any) -> None:
            if isinstance(event, events.FrameCaptured):
                work.graphs += event.graph is not None
                if event.graph_break:
                    work.left.append(_first_line(event.graph_break.reason))
            elif isinstance(event, (events.FrameSkipped, events.GraphKept)):
                work.left.append(_first_line(event.reason))
            elif isinstance(event, events.Lowered):
                work.kernels += event.kernels
                work.whole += len(event.whole)
                work.reasons += event.whole

        with events.listen(listener):
            yield work


def front_end(name: str) -> FrontEnd:
    """The front end of that name; `ValueError` for an empty one. Whether a backend exists shows when it compiles."""
    kind, colon, backend = name.partition(":")
    if not name or (colon and not backend):
        raise ValueError(f"{name!r} is not the name of a front end")
    if name == REFERENCE:
        return FrontEnd(name)
    if name == PEER:
        return Torch(name, PEER)
    if colon and kind == "torch":
        return Torch(name, backend)
    return Jitney(name, backend if colon and kind == "jitney" else name)


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]
