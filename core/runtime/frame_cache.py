"""Frames that outlive their process: stored when they have run once, looked for before anything is captured."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import struct
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from jitney import events
from jitney._util import generated_code
from jitney._util.ownership import trusted
from jitney.aot.form import Form
from jitney.aot.runtime.backward import Backward, Tangent
from jitney.backends import SerializedGraph, registry
from jitney.backends.faults import Unwritten
from jitney.backends.identity import identity_of_handlers, packages
from jitney.cache.digest import NotStorable, digest, of_code
from jitney.cache.frame_reader import StoredFrame, holds, without_graph
from jitney.cache.frame_writer import FrameWriter
from jitney.cache.frames import frames_on_disk, store, stored
from jitney.cache.key import edited, environment, flags, settings
from jitney.cache.recipes import Reader, Stale
from jitney.cache.store import DiskCache
from jitney.capture.marks import everything_said
from jitney.config import config
from jitney.guards.assumptions import Assumptions
from jitney.guards.program import MISS, guards_held
from jitney.guards.stored_guards import first_failing
from jitney.guards.tensors import Sizes
from jitney.runtime.continuation import Continuation, EagerRun
from jitney.runtime.entry import CodeEntries, Content, Entry, no_content
from jitney.runtime.recompile_reasons import in_guards, recompile_reasons
from jitney.torch_compat import markers, torch_private
from jitney.torch_compat.default_device import lifted
from jitney.torch_compat.global_state import state_text

if TYPE_CHECKING:
    from jitney.capture.codegen.emit import Emitted

# Namespaces of operators that come with torch.
OWN_OPERATORS = {"aten", "prim", "prims", "quantized", "mkldnn", "_c10d_functional"}
CALLED = (types.FunctionType, types.BuiltinFunctionType, type)
FAILED = "its graph raised at the first call, which then ran eagerly"
NOT_STORED = "nothing was stored of it: config.cache was off when it was compiled, or somebody looked at its code"
# What reading something else than was written may raise.
DAMAGED = (ValueError, LookupError, TypeError, AttributeError, struct.error, SyntaxError, RuntimeError, OSError)


@dataclasses.dataclass(slots=True)
class LoadedFrame:
    """A frame that was taken from disk; ``function`` runs it."""

    function: Any
    sizes: dict[str, Sizes]  # of the tensors that it asks about, by name
    report: bytes  # see ``guards/stored_guards.py``
    fixed: bool  # is it of no use to try it for another call, once it is an entry?
    bound: tuple[int, ...]  # see ``StoredFrame.bound``
    seconds: float
    number: int  # see ``events.subject``
    content: Content  # the frame again
    name: str  # on disk, or its digest in a file


def _used() -> bool:
    """Frames that somebody wants to look at are compiled here and now."""
    return config.cache and not config.compile_debug and not markers.wanted()


def load(owner: CodeEntries, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[LoadedFrame]:
    """The frames on disk that may stand for a call: those with a graph do; what others return may be ``MISS``."""
    cache = frames_on_disk() if _used() else None
    key = None if cache is None else frame_key(owner)
    if cache is not None and key is not None:
        found = stored(cache, key, oldest_first(owner), without=owner.disk.entered)
        held = ((name, content, functools.partial(_on_disk, cache, name)) for name, content in found)
        yield from load_from(owner, held, args, kwargs)


def load_from(
    owner: CodeEntries,
    held: Iterable[tuple[str, bytes, Content]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    reasons: list[str] | None = None,
) -> Iterator[LoadedFrame]:
    """The same of given frames.

    Args:
        owner: whose they are.
        held: of each its name, itself, and a function that gives it again later.
        args: the call's.
        kwargs: the call's.
        reasons: gets why each of the others does not fit.
    """
    try:
        arguments, cells = owner.scope(args, kwargs)
    except TypeError:  # a call that the function itself refuses, in its own words
        return
    arguments |= {f"_cell{i}": cell for i, cell in enumerate(cells)}
    for name, content, reread in held:
        begin = time.perf_counter()
        frame = None
        try:
            with events.compiling() as number:
                frame = _frame(owner, content, arguments)
                found = _build(owner, frame, args, kwargs)
        except (Stale, *DAMAGED) as error:
            reason = str(error) if isinstance(error, Stale) else f"{type(error).__name__}: {error}"
            events.emit(events.FrameRefused(*place(owner), reason))
            if reasons is not None:
                reasons.append(reason)
            if frame is not None:
                frame.discard()
            continue
        if found is not None:
            yield LoadedFrame(*found, time.perf_counter() - begin, number, reread, name)
        if reasons is not None:  # it does not hold, or whoever got it came back: without a graph, that shows later
            reasons.append(_failing_guard(frame, arguments))
        frame.discard()


def _frame(owner: CodeEntries, content: bytes, arguments: Mapping[str, Any]) -> StoredFrame:
    backend = owner.session.backend

    def load_graph(name: str, kind: Any, frame: str, data: Any, blobs: tuple[bytes, ...]) -> Any:
        return backend.load(name, kind, frame, SerializedGraph(data, blobs))

    return StoredFrame(
        content, known_objects(owner), arguments, load_graph, _backward_maker(owner), _parts_of_frames(owner)
    )


def _parts_of_frames(owner: CodeEntries) -> dict[str, Callable[..., Any]]:
    """Makers of what a frame that breaks goes on with; what they need is imported when they do."""

    def point(*recipe: Any) -> CodeEntries:
        from jitney.capture.interpreter.resume_serialization import place_again

        place = place_again(*recipe)
        return owner.point(place.code, place.index, place.layout, place.namespace)

    def code(kind: str, *recipe: Any) -> types.CodeType:
        from jitney.capture.interpreter.resume_serialization import made_again

        return made_again(kind, *recipe)

    def sized(reader: Reader, text: int, blobs: Sequence[int]) -> Any:
        from jitney.graph_compile.pipeline import sized_again

        rest = [reader.blobs[number] for number in blobs]
        return sized_again(owner.session.backend, reader.make(text), rest, owner.target.name, owner.shown)

    return {
        "point": point,
        "sized": sized,
        **{kind: functools.partial(code, kind) for kind in ("step", "generator", "stand_in")},
    }


def _build(
    owner: CodeEntries, frame: StoredFrame, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[types.FunctionType, dict[str, Sizes], bytes, bool, tuple[int, ...]] | None:
    space = frame.namespace
    space.update(_failed=_failure_handler(owner), _guard_errors=Exception, _unwritten=Unwritten)
    filename = f"<jitney {owner.target.name} {id(space):x}>"
    function = generated_code.build(frame.source, filename, space, "_entry")
    owner.target.lend(function)
    if frame.has_graph:
        if not holds(function, args, kwargs):
            return None
        with lifted():
            space.update(_graph=frame.graph(), _held=guards_held)
    sizes = {name: fact.sizes for name, fact in zip(frame.data["names"], frame.facts, strict=True)}
    fixed, bound = frame.fixed, frame.bound
    frame.forget()
    return function, sizes, frame.report, fixed, bound


def has_graph(function: types.FunctionType) -> bool:
    """Does an emitted function run a graph?"""
    return "_graph" in function.__code__.co_names


def would_hold(owner: CodeEntries, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Do an entry's guards hold for a call, which does not run? Without a graph: is no guard known that does not?"""
    made: types.FunctionType = entry.function
    if has_graph(made):
        return holds(without_graph(made), args, kwargs)
    try:
        arguments, cells = owner.scope(args, kwargs)
    except TypeError:  # a call that the function itself refuses
        return False
    return recompile_reasons([entry], arguments, cells) is None


def _failing_guard(frame: StoredFrame, arguments: Mapping[str, Any]) -> str:
    failing = first_failing(json.loads(frame.report), frame.namespace, in_guards(arguments))
    return f"{failing[0]} (found {failing[1]})" if failing else "a guard does not hold"


def place(owner: CodeEntries) -> tuple[str, str, int]:
    """Name, file and line of a function, as events tell them."""
    return owner.target.name, owner.shown.co_filename, owner.shown.co_firstlineno


def _failure_handler(owner: CodeEntries) -> Any:
    def failed(error: Exception, inputs: tuple[Any, ...], /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(error, torch_private.STOPS_RECOMPUTATION):
            raise error
        return owner.failed(error.error if isinstance(error, Unwritten) else error, None, args, kwargs)

    return failed


class FrameSerialization:
    """An entry that is about to run for the first time; then it is put on disk, if it can be made again elsewhere.

    What it was captured from is noted now: running it may change that, and a frame that breaks runs the program's code.
    """

    def __init__(self, owner: CodeEntries, entry: Entry) -> None:
        self.entry = entry
        self.on_disk: _FrameOnDisk | None = None
        cache = frames_on_disk() if _used() else None
        emitted = entry.emitted
        assert emitted is not None
        self.steps = [code for code in emitted.namespace.values() if id(code) in emitted.made]
        if owner.home is None or cache is None:
            entry.content = functools.partial(no_content, NOT_STORED)
        else:
            if emitted.graph is not None:
                note_operations(emitted.graph.graph, emitted.assumptions)
            self.on_disk = _FrameOnDisk(owner, emitted, emitted.assumptions, cache, frame_key(owner))
            self.on_disk.note(state_text())
        emitted.forget_capture()

    def returned(self, result: Any) -> None:
        """It has run."""
        if type(result) is not Continuation or type(result.point) is not EagerRun:
            self._store()
        elif self.on_disk is not None:
            self.entry.content = functools.partial(no_content, FAILED)

    def raised(self, error: Exception) -> None:
        """It has raised: that is all right where it was the program's code, after a break."""
        at = error.__traceback__
        while at is not None:
            if any(at.tb_frame.f_code is code for code in self.steps):
                self._store()
                return
            at = at.tb_next

    def _store(self) -> None:
        if self.on_disk is not None:
            self.entry.content = self.on_disk.content
            self.on_disk.write()


def note_operations(graph: fx.Graph, assumptions: Assumptions) -> None:
    """Note what the operations of a captured graph depend on: AOT looks into Python functions, and makes no record."""
    for node in graph.nodes:
        target = node.target
        if isinstance(target, types.FunctionType):
            space = target.__globals__
            if not trusted(space):
                assumptions.keep_private(f"{target.__qualname__}, which is recorded as a whole")
            for name in target.__code__.co_names:
                if isinstance(space.get(name), CALLED):
                    assumptions.take(space, name, space[name])
        elif isinstance(target, torch_private.OPERATOR_CLASSES) and str(target).partition(".")[0] not in OWN_OPERATORS:
            assumptions.keep_private(f"the operator {target}, which is not torch's")


@dataclasses.dataclass
class _FrameOnDisk:
    """A frame on disk, written again when more of it has been compiled: the backward of a graph, at the first one."""

    owner: CodeEntries
    emitted: Emitted
    assumptions: Assumptions
    cache: DiskCache
    key: str | None
    name: str = ""
    reason: str = ""  # why it is not on disk
    writer: FrameWriter | None = None

    def note(self, state: str | None) -> None:
        """Look at what it was captured from; ``state`` of torch's is the one that it was captured in."""
        with self._refusals():
            if self.cache.problem:
                raise NotStorable(self.cache.problem)
            if self.assumptions.private:
                raise NotStorable(self.assumptions.private)
            if self.key is None:
                raise NotStorable("the backend, or an extension, may do something else in another process")
            emitted = self.emitted
            parts = emitted.source, emitted.namespace, emitted.guards, emitted.tensors
            known, conditions = known_objects(self.owner), emitted.conditions
            self.writer = FrameWriter(*parts, self.assumptions, known, state, emitted.made, conditions)

    def write(self) -> None:
        """Write it, or tell why not."""
        if self.writer is not None:
            self.reason = ""
            with self._refusals():
                self._write(self.writer)
        events.emit(events.FrameStored(*place(self.owner), self.reason))

    def _write(self, writer: FrameWriter) -> None:
        if self.assumptions.private:
            raise NotStorable(self.assumptions.private)
        handling = [name for row in registry.handler_listings() for name in registry.handler_packages(row.name)]
        if any(map(edited, ("jitney", *handling, *packages(self.owner.session.backend)))):
            raise NotStorable("files of jitney's or of a plugin's were edited since they were imported")
        content, later = writer.content(self.emitted.namespace.get("_graph"))
        assert self.key is not None
        self.name = store(self.cache, self.key, content, self.name)
        if writer.fixed:
            self.owner.disk.entered.add(self.name)
        for backward in later:
            backward.grown = self.write
        if not later:
            self.writer = None  # there will be no more
        if self.cache.problem:
            raise NotStorable(self.cache.problem)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """What cannot be stored is a reason, and so is a bug of ours."""
        try:
            yield
        except NotStorable as error:
            self.reason = str(error)
        except Exception as error:
            if config.verify:
                raise
            self.reason = f"a bug of jitney's: {type(error).__name__}: {error}"

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


def _backward_maker(owner: CodeEntries) -> Callable[..., Backward]:
    """What makes the backward of a stored graph: what was compiled of it is there, the rest is compiled if needed."""

    def make(
        name: str,
        places: list[int | None],
        layouts: list[tuple[Any, tuple[int, ...]]],
        absent: list[tuple[int, ...]],
        runs: list[Any],
        form: Form,
        blobs: list[bytes],
    ) -> Backward:
        text, rest = blobs[0].decode(), blobs[1:]

        @functools.cache
        def whole() -> Backward:
            from jitney.graph_compile.pipeline import backward_again

            return backward_again(owner.session.backend, text, rest, places, name, owner.shown, form)

        made = Backward(
            [Tangent(*layout) for layout in layouts],
            places,
            lambda absent, variant=None: whole().compile_absent(absent, variant),
            lambda missing: whole().reduced(missing),
            lambda: (text, rest),
            name,
            form,
        )
        made.compiled.update(zip(absent, runs, strict=True))
        return made

    return make


def known_objects(owner: CodeEntries) -> dict[str, Any]:
    """The objects that emitted code names and that are there before it."""
    target, place = owner.target, owner.place
    own = {"function": target.function} if place is None else {"code": place.code}
    return {"MISS": MISS, "globals": target.globals, **own}


def oldest_first(owner: CodeEntries) -> bool:
    """In which order frames are tried: which one it is decides where a frame breaks next.

    So after a break a process takes the way of the one before, which a newer frame that is more general may leave.
    """
    return owner.place is not None


def label(owner: CodeEntries) -> str:
    """What tells the frames of one function apart: which rest of it they are; empty for the function itself."""
    place = owner.place
    return "" if place is None else place.label()


def frame_key(owner: CodeEntries) -> str | None:
    """What the frames of a function, or of a rest of it, are stored under; None if nobody knows what they depend on."""
    session, home = owner.session, owner.home
    watched = session.backend.own.crosscheck or session.backend.own.freeze or config.repro_after
    if home is None or session.identity is None or registry.changes_graphs() or watched:
        return None
    target = home.target
    return digest(
        environment(), settings(), flags(), session.identity, identity_of_handlers(), everything_said(),
        (session.fullgraph, session.dynamic, torch.distributed.is_available() and torch.distributed.is_initialized()),
        session.backend.own.drop_grads,
        (of_code(target.code), target.signature(), str(target.globals.get("__name__")), of_code(home.shown)),
        label(owner),
    )  # fmt: skip
