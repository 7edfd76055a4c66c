"""Frames that outlive their process: kept on disk when they have run once, found there before anything is captured."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import struct
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from jitney import _torch, events, generated, markers
from jitney.aot.backward import Backward, Tangent
from jitney.backends import BoundBackend, Kept, registry
from jitney.cache.digest import Fingerprints, NotStorable, digest, of_code
from jitney.cache.frame_reader import StoredFrame, holds
from jitney.cache.frame_writer import write_frame
from jitney.cache.frames import frames_on_disk, name_of, store, stored
from jitney.cache.key import edited, environment, flags, settings, sources
from jitney.cache.recipes import Stale
from jitney.cache.store import DiskCache
from jitney.capture.marks import everything_said
from jitney.config import config
from jitney.default_device import lifted
from jitney.guards.miss import MISS
from jitney.guards.report import first_failing
from jitney.guards.tensors import Sizes
from jitney.guards.trail import Trail
from jitney.misfits import in_guards
from jitney.state import state_text
from jitney.trust import trusted

if TYPE_CHECKING:
    from jitney.capture.emit import Emitted
    from jitney.dispatch import Entry, Root

# Namespaces of operators that come with torch.
OWN_OPERATORS = {"aten", "prim", "prims", "quantized", "mkldnn", "_c10d_functional"}
CALLED = (types.FunctionType, types.BuiltinFunctionType, type)
Content = Callable[[], bytes]  # a frame as it is stored; raises ``NotStorable``
BREAKS = "it breaks, and a part of a frame is not kept"
NOT_KEPT = "nothing was kept of it: config.cache was off when it was compiled, or somebody looked at its code"
# What reading something else than was written may raise.
DAMAGED = (ValueError, LookupError, TypeError, AttributeError, struct.error, SyntaxError, RuntimeError, OSError)


@dataclasses.dataclass(slots=True)
class Loaded:
    """A frame that was taken from disk; ``function`` runs it."""

    function: Any
    sizes: dict[str, Sizes]  # of the tensors that it asks about, by name
    report: bytes  # see ``guards/report.py``
    seconds: float
    number: int  # see ``events.subject``
    content: Content  # the frame again


def _used() -> bool:
    """Frames that somebody wants to look at are compiled here and now."""
    return config.cache and not config.compile_debug and not markers.wanted()


def load(root: Root, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Loaded]:
    """The frames on disk that may stand for a call: those with a graph do; what others return may be ``MISS``."""
    cache = frames_on_disk() if _used() else None
    key = None if cache is None else frame_key(root)
    if cache is not None and key is not None:
        held = ((content, functools.partial(_on_disk, cache, name_of(key, content))) for content in stored(cache, key))
        yield from load_of(root, held, args, kwargs)


def load_of(
    root: Root,
    held: Iterable[tuple[bytes, Content]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    reasons: list[str] | None = None,
) -> Iterator[Loaded]:
    """The same of given frames; each with a function that gives it again later.

    Args:
        reasons: gets why each of the others does not fit.
    """
    try:
        arguments, _ = root.scope(args, kwargs)
    except TypeError:  # a call that the function itself refuses, in its own words
        return
    for content, again in held:
        begin = time.perf_counter()
        try:
            with events.compiling() as number:
                frame = _frame(root, content, arguments)
                found = _made(root, frame, args, kwargs)
        except (Stale, *DAMAGED) as error:
            reason = str(error) if isinstance(error, Stale) else f"{type(error).__name__}: {error}"
            events.emit(events.FrameRefused(*place(root), reason))
            if reasons is not None:
                reasons.append(reason)
            continue
        if found is not None:
            yield Loaded(*found, time.perf_counter() - begin, number, again)
        elif reasons is not None:
            reasons.append(_unfit(frame, root, arguments))


def _frame(root: Root, content: bytes, arguments: Mapping[str, Any]) -> StoredFrame:
    backend = root.session.backend

    def load_graph(name: str, kind: Any, frame: str, data: Any, blobs: tuple[bytes, ...]) -> Any:
        return backend.load(name, kind, frame, Kept(data, blobs))

    return StoredFrame(content, known(root), arguments, load_graph, _reviving(root))


def _made(
    root: Root, frame: StoredFrame, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[types.FunctionType, dict[str, Sizes], bytes] | None:
    space = frame.namespace
    space.update(_retry=root.retry, _failed=_failing(root), _guard_errors=Exception)
    filename = f"<jitney {root.target.name} {id(space):x}>"
    function = generated.build(frame.source, filename, space, "_entry")
    function.__defaults__ = root.function.__defaults__
    function.__kwdefaults__ = root.function.__kwdefaults__
    if frame.has_graph:
        if not holds(function, args, kwargs):
            return None
        with lifted():
            space["_graph"] = frame.graph()
    sizes = {name: fact.sizes for name, fact in zip(frame.data["names"], frame.facts, strict=True)}
    frame.forget()
    return function, sizes, frame.report


def _unfit(frame: StoredFrame, root: Root, arguments: Mapping[str, Any]) -> str:
    failing = first_failing(json.loads(frame.report), frame.namespace, in_guards(arguments))
    return f"{failing[0]} (found {failing[1]})" if failing else "a guard does not hold"


def place(root: Root) -> tuple[str, str, int]:
    """Name, file and line of a function, as events tell them."""
    return root.target.name, root.shown.co_filename, root.shown.co_firstlineno


def _failing(root: Root) -> Any:
    def failed(error: Exception, inputs: tuple[Any, ...], /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(error, _torch.STOPS_RECOMPUTATION):
            raise error
        return root.failed(error, None, args, kwargs)

    return failed


def keep(root: Root, entry: Entry) -> None:
    """Put a frame that has just run for the first time on disk, if it can be made again elsewhere."""
    cache = frames_on_disk() if _used() else None
    emitted = entry.emitted
    if cache is None or emitted is None:
        entry.content = functools.partial(nothing, NOT_KEPT)
        return
    kept = _Kept(root, emitted, emitted.trail, cache, frame_key(root), state_text())
    if emitted.graph is not None:
        note_operations(emitted.graph.graph, emitted.trail)
    emitted.trail = type(emitted.trail)()
    entry.content = kept.content
    kept.write()


def note_operations(graph: fx.Graph, trail: Trail) -> None:
    """Note what the operations of a captured graph depend on: AOT looks into Python functions, and keeps no record."""
    for node in graph.nodes:
        target = node.target
        if isinstance(target, types.FunctionType):
            space = target.__globals__
            if not trusted(space):
                trail.keep_private(f"{target.__qualname__}, which is recorded as a whole")
            for name in target.__code__.co_names:
                if isinstance(space.get(name), CALLED):
                    trail.take(space, name, space[name])
        elif isinstance(target, _torch.OPERATOR_CLASSES) and str(target).partition(".")[0] not in OWN_OPERATORS:
            trail.keep_private(f"the operator {target}, which is not torch's")


@dataclasses.dataclass
class _Kept:
    """A frame on disk, written again when more of it has been compiled: the backward of a graph, at the first one."""

    root: Root
    emitted: Emitted
    trail: Trail
    cache: DiskCache
    key: str | None
    state: str | None
    name: str = ""
    reason: str = ""  # why it is not on disk
    prints: Fingerprints = dataclasses.field(default_factory=Fingerprints)  # of when it was captured, not of later

    def write(self) -> None:
        """Write it, or tell why not."""
        emitted, reason = self.emitted, ""
        try:
            if self.cache.problem:
                raise NotStorable(self.cache.problem)
            if self.trail.private:
                raise NotStorable(self.trail.private)
            if self.key is None:
                raise NotStorable("the backend, or an extension, may do something else in another process")
            if any(map(edited, ("jitney", *_packages(self.root.session.backend)))):
                raise NotStorable("files of jitney's or of a backend's were edited since they were imported")
            parts = emitted.source, emitted.namespace, emitted.guards, emitted.tensors
            content, later = write_frame(*parts, self.trail, known(self.root), self.state, self.prints)
            self.name = store(self.cache, self.key, content, self.name)
            reason = self.cache.problem
            for backward in later:
                backward.grown = self.write
        except NotStorable as error:
            reason = str(error)
        except Exception as error:
            if config.verify:
                raise
            reason = f"a bug of jitney's: {type(error).__name__}: {error}"
        self.reason = reason
        events.emit(events.FrameStored(*place(self.root), reason))

    def content(self) -> bytes:
        """What is on disk; raises ``NotStorable`` with the reason why nothing is."""
        if self.reason:
            raise NotStorable(self.reason)
        return _on_disk(self.cache, self.name)


def _on_disk(cache: DiskCache, name: str) -> bytes:
    content = cache.load(name)
    if content is None:
        raise NotStorable(f"it is no longer in {cache.folder}")
    return content


def nothing(reason: str) -> bytes:
    """The content of a frame that is not kept: an error."""
    raise NotStorable(reason)


def _reviving(root: Root) -> Callable[..., Backward]:
    """What makes the backward of a stored graph: what was compiled of it is there, the rest is compiled if needed."""

    def revive(
        name: str,
        places: list[int | None],
        layouts: list[tuple[Any, tuple[int, ...]]],
        absent: list[tuple[int, ...]],
        runs: list[Any],
        blobs: list[bytes],
    ) -> Backward:
        text, rest = blobs[0].decode(), blobs[1:]

        @functools.cache
        def whole() -> Backward:
            again = importlib.import_module("jitney.pipeline").backward_again
            made: Backward = again(root.session.backend, text, rest, places, name, root.shown)
            return made

        made = Backward(
            [Tangent(*layout) for layout in layouts],
            places,
            lambda absent, variant=None: whole().compile_absent(absent, variant),
            lambda missing: whole().reduced(missing),
            lambda: (text, rest),
            name,
        )
        made.compiled.update(zip(absent, runs, strict=True))
        return made

    return revive


def known(root: Root) -> dict[str, Any]:
    """The objects that emitted code names and that are there before it."""
    return {"MISS": MISS, "function": root.function, "globals": root.target.globals}


def frame_key(root: Root) -> str | None:
    """What the frames of a function are kept under; None if what they depend on cannot be said."""
    session = root.session
    watched = session.backend.own.crosscheck or session.backend.own.freeze or config.repro_after
    if session.identity is None or registry.changes_graphs() or watched:
        return None
    target = root.target
    return digest(
        environment(), settings(), flags(), session.identity, everything_said(),
        (session.fullgraph, session.dynamic, torch.distributed.is_available() and torch.distributed.is_initialized()),
        (of_code(target.code), target.signature(), str(target.globals.get("__name__")), of_code(root.shown)),
    )  # fmt: skip


def identity(bound: BoundBackend, files: Callable[[str], str] = sources) -> list[Any] | None:
    """What a backend's graphs depend on besides themselves; None for one that did not come by an entry point.

    Args:
        files: what tells the files of a package from others.
    """
    if bound.parts:
        parts = [identity(part, files) for part in bound.parts]
        return None if None in parts else [bound.name, *parts]
    backend = bound.backend
    row = next((row for row in registry.listings() if row.name == backend.name), None)
    if row is None or row.status != "loaded" or registry.get(backend.name) is not backend:
        return None
    fields = dataclasses.fields(bound.options) if bound.options is not None else ()
    options = [(field.name, getattr(bound.options, field.name)) for field in fields]
    return [row.name, row.package, row.version, backend.version, options, *map(files, _packages(bound))]


def _packages(bound: BoundBackend) -> list[str]:
    """The packages that a backend is written in."""
    if bound.parts:
        return [package for part in bound.parts for package in _packages(part)]
    package = str(getattr(bound.backend.compile, "__module__", "")).partition(".")[0]
    return [package] if isinstance(sys.modules.get(package), types.ModuleType) else []
