"""What happens while compiling, told to whoever listens: the only thing that ``debug`` knows of the rest."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from traceback import FrameSummary
from typing import Any

from torch.fx import Graph, GraphModule

from jitney._util.garbage import without_collector
from jitney.config import config


@dataclass(frozen=True)
class GraphBreak:
    """Capture stopped here: the graph so far runs, this one thing runs in Python, then capture goes on."""

    reason: str
    hint: str
    user_stack: tuple[FrameSummary, ...]  # outermost first


@dataclass(frozen=True)
class GraphCaptured:
    """A graph on its way to the backend; ``FrameCaptured`` comes when all has gone well.

    Args:
        name, filename, line: the user's function.
        graph: operations as the user called them; or, if ``transformed``, what extensions made of it.
        inputs: FakeTensors and symbols, one for each placeholder.
        transformed: is this the graph after extensions have changed it?
    """

    name: str
    filename: str
    line: int
    graph: GraphModule
    inputs: Sequence[Any]
    transformed: bool = False


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
    """A compiled graph raised before anything was written: the frame runs eagerly, to raise (or not) as eager does.

    ``blame``: what blames the backend; None where the graph raises as it was captured, too, or nobody has looked.
    """

    name: str
    filename: str
    line: int
    error: Exception
    blame: Exception | None = None


@dataclass(frozen=True)
class Recompiled:
    """No cached entry held: the first guard that failed in the entry tried first."""

    name: str
    filename: str
    line: int
    guard: str  # source text with expected and found value
    user_line: str
    entries: int  # how many entries there were
    expected: str = ""  # the guard alone
    found: str = ""  # what it met


@dataclass(frozen=True)
class LimitReached:
    """A callable has taken so many forms (``config.cache_size_limit``) that it runs eagerly where none of them fits."""

    name: str
    filename: str
    line: int
    guard: str  # the one that kept failing
    entries: int


@dataclass(frozen=True)
class Phase:
    """A phase of compiling ended: ``capture``, ``backend NAME``, ``emit``...

    Args:
        name: of the phase.
        frame: the user's function.
        seconds: from its begin to its end.
        own: of these, what phases within it did not take.
        begin: as ``time.perf_counter`` has it.
        thread: the identity of the thread.
    """

    name: str
    frame: str
    seconds: float
    own: float = 0.0
    begin: float = 0.0
    thread: int = 0


@dataclass(frozen=True)
class Step:
    """One of the three steps of compiling begins or ends: 1 ``capture``, 2 ``aot``, 3 ``backend NAME``.

    The backend is called within step 2, once for each half of a graph; for a backward that is later, alone.
    """

    number: int
    name: str
    frame: str
    seconds: float | None = None  # None when it begins
    failed: str = ""  # the exception with which it ended


@dataclass(frozen=True)
class Artefact:
    """A backend made something worth a look: ``output_code``, ``schedule``..."""

    name: str
    frame: str
    backend: str
    text: str
    kind: str = ""  # of the graph: inference, forward, backward; empty if it is of all of them


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


@dataclass(frozen=True)
class Launch:
    """A kernel, or an operator that runs as a whole; sizes that may change are taken as they were while compiling.

    Args:
        name: unique in its graph: ``k0``, ``k1``... and the operators' own names.
        kind: ``kernel`` or ``extern``.
        operators: the ATen operators that it computes.
        places: the user's lines that these come from, as ``file:line``.
        read, written: bytes, each element once.
        alive: bytes of the graph's inputs, outputs and temporaries while it runs.
        text: its loops, or the call.
        reason: why it is no kernel.
    """

    name: str
    kind: str
    operators: tuple[str, ...]
    places: tuple[str, ...]
    read: int
    written: int
    alive: int
    text: str
    reason: str = ""


@dataclass(frozen=True)
class Scheduled:
    """What runs for an ATen graph, in order; emitted only if somebody wants details.

    Args:
        frame: the user's function.
        kind: inference, forward or backward.
        backend: whose kernels.
        launches: in order.
        arena: bytes of the one block in which temporaries share places.
        before: the loops before fusion, as text.
        after: kernels and operators, as text.
    """

    frame: str
    kind: str
    backend: str
    launches: tuple[Launch, ...]
    arena: int
    before: str
    after: str


@dataclass(frozen=True)
class Told:
    """What an extension has to say about a graph: lines under a title, for ``explain`` and the logs."""

    title: str
    frame: str
    rows: tuple[str, ...]


Event = (
    GraphBreak
    | GraphCaptured
    | FrameCaptured
    | FrameSkipped
    | FrameLoaded
    | FrameRefused
    | FrameStored
    | Recompiled
    | LimitReached
    | Phase
    | Step
    | Artefact
    | AtenGraph
    | GraphKept
    | GraphFailed
    | Placed
    | Lowered
    | Scheduled
    | Told
)


@dataclass
class _Bus:
    listeners: list[Callable[[Any], None]] = field(default_factory=list)
    details: int = 0  # how many want them


class _Working(threading.local):
    """What a thread is compiling."""

    number = 0
    inner = 0.0  # seconds of the phases within the one that is open


_bus = _Bus()
_working = _Working()
_numbers = itertools.count(1)


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


def detailed() -> bool:
    """Does somebody want what costs time to tell: generated code, loops, bytes?"""
    return _bus.details > 0 or config.compile_debug


def want_details(wanted: bool) -> None:
    """Ask for details, or take that back; whoever asks takes it back once."""
    _bus.details += 1 if wanted else -1


@contextlib.contextmanager
def details() -> Iterator[None]:
    """Ask for details until the block ends."""
    want_details(True)
    try:
        yield
    finally:
        want_details(False)


@contextlib.contextmanager
def compiling(number: int | None = None) -> Iterator[int]:
    """Until the block ends all that this thread emits is about one frame, new or known, and no garbage is collected."""
    before = _working.number
    _working.number = next(_numbers) if number is None else number
    try:
        with without_collector():
            yield _working.number
    finally:
        _working.number = before


def subject() -> int:
    """The number of the frame that an event of this thread is about, from 1 on; 0 if nobody knows.

    A backward that is compiled later has its forward's. A frame that is compiled anew gets another one.
    """
    return _working.number


@contextlib.contextmanager
def phase(name: str, frame: str) -> Iterator[None]:
    """Time a block and emit it as a ``Phase``."""
    outer, _working.inner = _working.inner, 0.0
    begin = time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - begin
        own, _working.inner = seconds - _working.inner, outer + seconds
        emit(Phase(name, frame, seconds, own, begin, threading.get_ident()))


@contextlib.contextmanager
def step(number: int, name: str, frame: str) -> Iterator[None]:
    """Emit a ``Step`` as a block begins, and another as it ends."""
    emit(Step(number, name, frame))
    begin, failed = time.perf_counter(), ""
    try:
        yield
    except BaseException as error:
        failed = type(error).__name__
        raise
    finally:
        emit(Step(number, name, frame, time.perf_counter() - begin, failed))
