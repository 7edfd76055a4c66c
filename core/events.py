"""What happens while compiling, told to whoever listens: the only thing that ``debug`` knows of the rest."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from traceback import FrameSummary
from typing import Any

from torch.fx import Graph, GraphModule


@dataclass(frozen=True)
class GraphBreak:
    """Capture stopped here: the graph so far runs, this one thing runs in Python, then capture goes on."""

    reason: str
    hint: str
    user_stack: tuple[FrameSummary, ...]  # outermost first


@dataclass(frozen=True)
class FrameCaptured:
    """A frame (or the rest of one, after a break) became code with at most one graph."""

    name: str
    filename: str
    line: int
    graph: GraphModule | None  # None when the frame ran no tensor operation
    op_count: int
    guards: tuple[str, ...]  # one readable line each
    graph_break: GraphBreak | None
    seconds: float
    source: str  # the Python source of the emitted function
    resumed: bool  # True for the rest of a frame after a break


@dataclass(frozen=True)
class FrameSkipped:
    """A frame that runs eagerly, and why."""

    name: str
    filename: str
    line: int
    reason: str


@dataclass(frozen=True)
class FrameLoaded:
    """A frame that an earlier process has captured and compiled was taken from disk."""

    name: str
    filename: str
    line: int
    seconds: float


@dataclass(frozen=True)
class FrameRefused:
    """A frame on disk was not used: something that it took for granted is otherwise in this process."""

    name: str
    filename: str
    line: int
    reason: str


@dataclass(frozen=True)
class FrameStored:
    """A captured and compiled frame was kept on disk, or not, for a reason."""

    name: str
    filename: str
    line: int
    reason: str  # empty if it was kept


@dataclass(frozen=True)
class GraphKept:
    """A graph that runs as it was captured, op by op, since no functional graph can say what it does; and why."""

    name: str
    filename: str
    line: int
    backend: str
    reason: str


@dataclass(frozen=True)
class GraphFailed:
    """A compiled graph raised before anything was written: the frame runs eagerly, to raise (or not) as eager does."""

    name: str
    filename: str
    line: int
    error: Exception


@dataclass(frozen=True)
class Recompiled:
    """No cached entry held: the first guard that failed in the entry tried first."""

    name: str
    filename: str
    line: int
    guard: str  # source text with expected and found value
    user_line: str
    entries: int  # how many entries there were


@dataclass(frozen=True)
class Phase:
    """A phase of compiling ended: ``capture``, ``backend NAME``, ``emit``..."""

    name: str
    frame: str
    seconds: float


@dataclass(frozen=True)
class Artefact:
    """A backend made something worth a look: ``output_code``, ``schedule``..."""

    name: str
    frame: str
    backend: str
    text: str


@dataclass(frozen=True)
class AtenGraph:
    """A functional ATen graph: ``joint`` before the cut; ``forward``, ``backward``, ``inference`` for a backend.

    Every node has its FakeTensor in ``meta["val"]`` and the user's frames in ``meta["user_stack"]``.
    """

    kind: str
    frame: str
    backend: str
    graph: Graph


@dataclass(frozen=True)
class Placed:
    """Who runs an ATen graph: for each piece, in order, the backend (or ``eagerly``) and how many operators it gets."""

    frame: str
    kind: str
    pieces: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Lowered:
    """What a kernel backend made of an ATen graph.

    Args:
        frame: the user's function.
        kind: inference, forward or backward.
        backend: whose kernels.
        kernels: how many.
        whole: operators that run as a whole rather than in kernels: (name, why), in order.
    """

    frame: str
    kind: str
    backend: str
    kernels: int
    whole: tuple[tuple[str, str], ...]


Event = (
    GraphBreak
    | FrameCaptured
    | FrameSkipped
    | FrameLoaded
    | FrameRefused
    | FrameStored
    | Recompiled
    | Phase
    | Artefact
    | AtenGraph
    | GraphKept
    | GraphFailed
    | Placed
    | Lowered
)


@dataclass
class _Bus:
    listeners: list[Callable[[Any], None]] = field(default_factory=list)


_bus = _Bus()


def emit(event: Event) -> None:
    """Tell every listener, in the order in which they subscribed."""
    for listener in tuple(_bus.listeners):
        listener(event)


@contextlib.contextmanager
def listen(listener: Callable[[Any], None]) -> Iterator[None]:
    """Call ``listener`` with every event until the block ends."""
    _bus.listeners.append(listener)
    try:
        yield
    finally:
        _bus.listeners.remove(listener)


def subscribe(listener: Callable[[Any], None]) -> None:
    """Call ``listener`` with every event for the rest of the process."""
    _bus.listeners.append(listener)


@contextlib.contextmanager
def phase(name: str, frame: str) -> Iterator[None]:
    """Time a block and emit it as a ``Phase``."""
    begin = time.perf_counter()
    try:
        yield
    finally:
        emit(Phase(name, frame, time.perf_counter() - begin))
