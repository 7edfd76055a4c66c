"""What compiled code is kept as: an entry, the entries of one code object, the session of one ``jitney.compile``."""

from __future__ import annotations

import enum
import functools
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from traceback import FrameSummary
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.forks import reentrant_lock
from jitney.backends import BoundBackend
from jitney.backends.identity import identity
from jitney.cache.digest import NotStorable
from jitney.capture.builtin_iterators import next_values
from jitney.capture.interpreter.target import Target
from jitney.errors import BackendFailed
from jitney.guards.dynamic import ObservedValues

if TYPE_CHECKING:
    from jitney.capture.codegen.call_through import CallThrough
    from jitney.capture.codegen.emit import Emitted
    from jitney.capture.interpreter.resume import Layout
    from jitney.capture.interpreter.resume_serialization import Place

Content = Callable[[], bytes]  # a frame as it is stored; raises ``NotStorable``
NOT_RUN = "it has not come to an end yet: its first call raised"


class CaptureFault(Exception):
    """Capture or what follows it raised ``error``, which is no refusal: a bug of ours."""

    def __init__(self, error: Exception, user_stack: tuple[FrameSummary, ...] = ()) -> None:
        super().__init__(str(error))
        self.error = error
        self.user_stack = user_stack


def no_content(reason: str) -> bytes:
    """The content of a frame that is not stored: an error."""
    raise NotStorable(reason)


@dataclass(slots=True)
class Entry:
    """One emitted function and what is known about it."""

    function: Any
    emitted: Emitted | None  # None: it comes from disk
    name: str
    group: tuple[int, ...] = ()  # the modules it was compiled for
    report: bytes = b"[]"  # its guards, if it comes from disk: see ``guards/stored_guards.py``
    content: Content = field(default_factory=lambda: functools.partial(no_content, NOT_RUN))  # as it is stored


def group_of(args: tuple[Any, ...]) -> tuple[int, ...]:
    """Which modules a call is about: the cache limit counts for each group, so that layers may share code.

    Those that an iterator gives next are among them: a loop over layers that a break cuts.
    """
    owners = [a.__self__ if type(a) is types.MethodType else a for a in args]
    for argument in args:
        owners += next_values(argument)
    return tuple(id(a) for a in owners if issubclass(type(a), torch.nn.Module))


class Frozen(threading.local):
    """Does this thread run what is compiled, and compile nothing (``jitney.run``)?"""

    on = False


@dataclass
class Session:
    """What one ``jitney.compile`` call shares among its frames."""

    backend: BoundBackend
    fullgraph: bool
    dynamic: bool | None
    lock: threading.RLock = field(default_factory=reentrant_lock)
    shown: types.CodeType | None = None  # what messages are about where the compiled function is a call of ours
    points: dict[Any, CodeEntries] = field(default_factory=dict)  # the rests of its frames after graph breaks
    frozen: Frozen = field(default_factory=Frozen)
    # What answers for the callees of code that runs by call-through, once there is such code.
    through: CallThrough | None = field(default=None, init=False)

    @functools.cached_property
    def identity(self) -> list[Any] | None:
        """What the backend's graphs depend on; None if nobody can say."""
        return identity(self.backend)

    def forget(self) -> None:
        """Drop everything compiled."""
        for point in self.points.values():
            point.forget()
        self.points.clear()
        if self.through is not None:
            self.through.forget()


class FrameState(enum.Enum):
    """What becomes of a call for which no entry holds."""

    CAPTURE = enum.auto()  # it is captured
    CALL_THROUGH = enum.auto()  # it is not for capturing: it runs in Python, its calls go through the compiler
    EAGER = enum.auto()  # the same, since capture gave up: ``CodeEntries.skip_reason`` says why
    ORIGINAL = enum.auto()  # entries do not run either: see ``wrappers.running_originals``


@dataclass
class Incidents:
    """What went wrong with a frame's entries, so that it is told once."""

    limit: bool = False  # the limit of entries was reached
    backend: bool = False  # the backend made a graph that fails
    replaced: bool = False  # somebody has replaced what capture relies on
    races: int = 0  # how often another thread may have changed what was just guarded


@dataclass
class DiskNames:
    """The frames on disk whose entries are here already.

    Args:
        entered: by name; they are of no use for another call.
        loaded: those that were read, by name and what they are bound to (see ``StoredFrame.bound``).
    """

    entered: set[str] = field(default_factory=set)
    loaded: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    def clear(self) -> None:
        """None is."""
        self.entered.clear()
        self.loaded.clear()


class CodeEntries:
    """The entries of one code object, for what compiles, stores and loads them; ``dispatch.py`` runs them."""

    def __init__(self, session: Session, target: Target) -> None:
        self.session = session
        self.target = target
        self.shown = target.code  # the code that messages are about
        self.entries: list[Entry] = []
        self.functions: tuple[Any, ...] = ()
        self.observed = ObservedValues(session.dynamic)
        self.state = FrameState.CAPTURE
        self.skip_reason = ""  # why it runs eagerly
        self.runs_plainly = False  # eagerly, and so does what it calls
        self.incidents = Incidents()
        self.disk = DiskNames()

    @property
    def home(self) -> CodeEntries | None:
        """The function with whose frames these are stored for other processes; None if they are not."""
        return None

    @property
    def place(self) -> Place | None:
        """Where in a function it goes on; None if it is the function itself."""
        return None

    def forget(self) -> None:
        """Drop everything compiled, and what was learnt."""
        self.entries.clear()
        self.disk.clear()
        self.functions = ()
        self.observed.forget()
        if self.state is FrameState.EAGER:
            self.state, self.skip_reason = FrameState.CAPTURE, ""
        self.incidents.limit = False

    def skip_frame(self, reason: str) -> None:
        """Run the frame eagerly from now on."""
        raise NotImplementedError

    def eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the frame without compiling it."""
        raise NotImplementedError

    def scope(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """The frame's arguments by parameter name, and its cells."""
        raise NotImplementedError

    def failed(
        self, error: Exception, blame: BackendFailed | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A graph failed before anything was written: the frame runs eagerly, to fail (or not) as eager does."""
        raise NotImplementedError

    def accuse(self, blame: BackendFailed) -> None:
        """A backend's graph failed where the captured one does not: raised under ``fullgraph``, else said once."""
        raise NotImplementedError

    def point(self, code: types.CodeType, index: int, layout: Layout, namespace: dict[str, Any]) -> CodeEntries:
        """The rest of a frame from this instruction on; made once, for the first function that comes there."""
        raise NotImplementedError

    def call_through(self) -> CallThrough:
        """What answers for the callees of code that runs in Python."""
        raise NotImplementedError
