"""The object with which a backend describes itself, and what it is told with each graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from traceback import FrameSummary
from typing import Any, Literal, get_args

from torch import fx

from jitney import events

Level = Literal["torch", "aten"]
Kind = Literal["inference", "forward", "backward"]


@dataclass(frozen=True)
class CompileRequest:
    """What a backend is told along with a graph.

    Args:
        backend: the name under which the backend was chosen.
        options: an instance of the backend's options dataclass, validated; None for a backend without options.
        kind: what the graph is: ``inference``, or the ``forward`` or ``backward`` half of a training step.
        frame: the user's function, for messages.
        user_stack: the user's frames, outermost first.
        cache_key: equal for equal graphs, inputs and options, in every process; None if nothing may be stored.
        updates: outputs that the caller copies into an input when the graph has run: position -> the input's. The
            backend may fill that input itself, after all that can fail, and return it as that output; the callable then
            has an attribute ``filled``, the set of those positions.
        fullgraph: did the user ask for errors (``fullgraph=True``) where something would be done in another way?
    """

    backend: str
    options: Any
    kind: Kind
    frame: str
    user_stack: tuple[FrameSummary, ...] = ()
    cache_key: str | None = None
    updates: Mapping[int, int] = dataclasses.field(default_factory=dict)
    fullgraph: bool = False

    def save(self, name: str, text: str) -> None:
        """Show ``text`` (generated code, a schedule...) to the logs and debug folders that listen."""
        events.emit(events.Artefact(name, self.frame, self.backend, text))

    @property
    def detailed(self) -> bool:
        """Does somebody want what costs time to write, such as generated code? Then ``save``, and ``scheduled``."""
        return events.detailed()

    def scheduled(self, launches: Sequence[events.Launch], arena: int, before: str, after: str) -> None:
        """Tell what runs, in order: see ``events.Scheduled``. ``jitney.lowering.describe`` makes it of a schedule."""
        events.emit(events.Scheduled(self.frame, self.kind, self.backend, tuple(launches), arena, before, after))

    def lowered(self, kernels: int, whole: Sequence[tuple[str, str]]) -> None:
        """Tell how many kernels the graph became, and which operators (name, why) run as a whole: for ``explain``."""
        events.emit(events.Lowered(self.frame, self.kind, self.backend, kernels, tuple(whole)))


@dataclass(frozen=True)
class Kept:
    """What a backend needs to make one of its compiled graphs again, in another process.

    Args:
        data: what JSON can say: None, numbers, text, lists, dictionaries with text as keys.
        blobs: bytes, such as object code.
    """

    data: Any
    blobs: tuple[bytes, ...] = ()


Compiled = Callable[..., Sequence[Any]]
Compile = Callable[[fx.GraphModule, Sequence[Any], CompileRequest], Compiled]


@dataclass(frozen=True)
class Backend:
    """A backend, described by itself.

    Args:
        name: what users write in ``backend=``; equal to the entry point's name.
        compile: ``compile(graph, inputs, request)`` returns a callable that takes the graph's inputs and returns
            the graph's outputs as a sequence. ``inputs`` are FakeTensors and SymInts: shapes, no data. If the callable
            has an attribute ``boxed``, that takes the inputs as one list and empties it, so that what a backward
            reads can die while it runs.
        level: the graphs it takes, ``torch`` (operations as the user called them) or ``aten``.
        device_types: where its nodes may live, as in ``torch.device.type``; empty for everywhere.
        options: a dataclass, every field with a default; users fill it through ``options={...}``. A field ``mode``
            gets what they write in ``mode=``: one of torch.compile's modes.
        decompositions: for ``aten``: operators to be taken apart before the graph arrives, as in ``torch._decomp``'s
            tables; or a function from the options to such a table.
        supports: for ``aten``: may this node be given to the backend?
        version: part of the identity of what it makes; the package's version if empty.
        load: ``load(kept, request)`` makes a compiled graph again in a later process, on the same kind of machine with
            the same versions and options. ``kept`` is the ``Kept`` that the compiled callable's attribute ``keep``, a
            function without arguments, returned; ``keep`` may raise ``jitney.cache.digest.NotStorable``, and ``load``
            ``jitney.cache.recipes.Stale``, each with a reason. Without ``load`` nothing of the backend's is kept on
            disk, but for graphs whose own ``forward`` it returned.
        lacks: what is missing on this machine for the backend, a sentence each; empty if it can work. ``jitney doctor``
            shows it, and ``backend="auto"`` leaves the operators of such a backend to eager, with one warning.
    """

    name: str
    compile: Compile
    level: Level = "torch"
    device_types: tuple[str, ...] = ()
    options: type | None = None
    decompositions: Mapping[Any, Callable[..., Any]] | Callable[[Any], Mapping[Any, Callable[..., Any]]] | None = None
    supports: Callable[[fx.Node], bool] | None = None
    version: str = ""
    load: Callable[[Kept, CompileRequest], Compiled] | None = None
    lacks: Callable[[], Sequence[str]] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"Backend.name is a non-empty string, got {self.name!r}")
        if not callable(self.compile):
            raise TypeError(f"Backend.compile of {self.name!r} is not callable: {self.compile!r}")
        if self.level not in get_args(Level):
            raise ValueError(f"Backend.level of {self.name!r} is 'torch' or 'aten', got {self.level!r}")
        if self.options is None:
            return
        if not isinstance(self.options, type) or not dataclasses.is_dataclass(self.options):
            raise TypeError(f"Backend.options of {self.name!r} is a dataclass, got {self.options!r}")
        for option in dataclasses.fields(self.options):
            if option.default is dataclasses.MISSING and option.default_factory is dataclasses.MISSING:
                raise TypeError(f"option {option.name!r} of backend {self.name!r} has no default")
