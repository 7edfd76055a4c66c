"""Frames that outlive their process: kept on disk when they have run once, found there before anything is captured."""

from __future__ import annotations

import dataclasses
import struct
import sys
import time
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from jitney import events, generated
from jitney.backends import BoundBackend, Kept, registry
from jitney.cache.digest import NotStorable, digest, of_code
from jitney.cache.frame_reader import StoredFrame, holds
from jitney.cache.frame_writer import write_frame
from jitney.cache.frames import frames_on_disk, store, stored
from jitney.cache.key import environment, settings, sources
from jitney.cache.recipes import Stale
from jitney.capture.marks import everything_said
from jitney.config import config
from jitney.guards.miss import MISS
from jitney.guards.tensors import Sizes

if TYPE_CHECKING:
    from jitney.dispatch import Entry, Root

# What reading something else than was written may raise.
DAMAGED = (ValueError, LookupError, TypeError, AttributeError, struct.error, SyntaxError, RuntimeError, OSError)


@dataclasses.dataclass(slots=True)
class Loaded:
    """A frame that was taken from disk; ``function`` runs it."""

    function: Any
    sizes: dict[str, Sizes]  # of the tensors that it asks about, by name
    seconds: float


def load(root: Root, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Loaded]:
    """The frames on disk that may stand for a call: those with a graph do; what others return may be ``MISS``."""
    cache = frames_on_disk() if config.cache else None
    key = None if cache is None else frame_key(root)
    if cache is None or key is None:
        return
    try:
        arguments, _ = root.scope(args, kwargs)
    except TypeError:  # a call that the function itself refuses, in its own words
        return
    for content in stored(cache, key):
        begin = time.perf_counter()
        try:
            found = _made(root, content, arguments, args, kwargs)
        except (Stale, *DAMAGED) as error:
            reason = str(error) if isinstance(error, Stale) else f"{type(error).__name__}: {error}"
            events.emit(events.FrameRefused(*place(root), reason))
            continue
        if found is not None:
            yield Loaded(*found, time.perf_counter() - begin)


def _made(
    root: Root, content: bytes, arguments: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[types.FunctionType, dict[str, Sizes]] | None:
    backend = root.session.backend

    def load_graph(name: str, kind: Any, frame: str, data: Any, blobs: tuple[bytes, ...]) -> Any:
        return backend.load(name, kind, frame, Kept(data, blobs))

    frame = StoredFrame(content, known(root), arguments, load_graph)
    space = frame.namespace
    space.update(_retry=root.retry, _failed=_failing(root), _guard_errors=Exception)
    filename = f"<jitney {root.target.name} {id(space):x}>"
    function = generated.build(frame.source, filename, space, "_entry")
    function.__defaults__ = root.function.__defaults__
    function.__kwdefaults__ = root.function.__kwdefaults__
    if frame.has_graph:
        if not holds(function, args, kwargs):
            return None
        space["_graph"] = frame.graph()
    return function, {name: fact.sizes for name, fact in zip(frame.data["names"], frame.facts, strict=True)}


def place(root: Root) -> tuple[str, str, int]:
    """Name, file and line of a function, as events tell them."""
    return root.target.name, root.shown.co_filename, root.shown.co_firstlineno


def _failing(root: Root) -> Any:
    def failed(error: Exception, inputs: tuple[Any, ...], /, *args: Any, **kwargs: Any) -> Any:
        return root.failed(error, None, args, kwargs)

    return failed


def keep(root: Root, entry: Entry) -> None:
    """Put a frame that has just run for the first time on disk, if it can be made again elsewhere."""
    cache = frames_on_disk() if config.cache else None
    emitted = entry.emitted
    if cache is None or emitted is None:
        return
    trail, emitted.trail = emitted.trail, type(emitted.trail)()
    reason = ""
    try:
        key = frame_key(root)
        if key is None:
            raise NotStorable("the backend, or an extension, may do something else in another process")
        content = write_frame(emitted.source, emitted.namespace, emitted.guards, emitted.tensors, trail, known(root))
        store(cache, key, content)
    except NotStorable as error:
        reason = str(error)
    except Exception as error:
        if config.verify:
            raise
        reason = f"a bug of jitney's: {type(error).__name__}: {error}"
    events.emit(events.FrameStored(*place(root), reason))


def known(root: Root) -> dict[str, Any]:
    """The objects that emitted code names and that are there before it."""
    return {"MISS": MISS, "function": root.function, "globals": root.target.globals}


def frame_key(root: Root) -> str | None:
    """What the frames of a function are kept under; None if what they depend on cannot be said."""
    session = root.session
    backend = _identity(session.backend)
    if backend is None or registry.hooks().hook.jitney_transform_graph.get_hookimpls():
        return None
    target = root.target
    return digest(
        environment(), settings(), backend, everything_said(),
        (session.fullgraph, session.dynamic, torch.distributed.is_available() and torch.distributed.is_initialized()),
        (of_code(target.code), target.signature(), str(target.globals.get("__name__")), of_code(root.shown)),
    )  # fmt: skip


def _identity(bound: BoundBackend) -> list[Any] | None:
    """What a backend's graphs depend on besides themselves; None for one that did not come by an entry point."""
    if bound.parts:
        parts = [_identity(part) for part in bound.parts]
        return None if None in parts else [bound.name, *parts]
    backend = bound.backend
    row = next((row for row in registry.listings() if row.name == backend.name), None)
    if row is None or row.status != "loaded" or registry.get(backend.name) is not backend:
        return None
    options = dataclasses.asdict(bound.options) if dataclasses.is_dataclass(bound.options) else bound.options
    return [row.name, row.package, row.version, backend.version, repr(options), _sources(backend.compile)]


def _sources(compile_graph: Any) -> str:
    package = str(getattr(compile_graph, "__module__", "")).partition(".")[0]
    return sources(package) if isinstance(sys.modules.get(package), types.ModuleType) else ""
