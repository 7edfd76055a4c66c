"""At each call: try the cached entries, capture on a miss, run eagerly where capture gave up."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Iterator
from traceback import FrameSummary
from typing import TYPE_CHECKING, Any

from jitney import events
from jitney._util import callers, recursion_room
from jitney.backends.extension_calls import capture_failed, warn_of_settings
from jitney.backends.faults import error_text
from jitney.backends.hookspecs import FailedFrame
from jitney.backends.resolve import resolve
from jitney.cache.digest import NotStorable
from jitney.capture.interpreter.signals import GiveUp
from jitney.capture.interpreter.target import Target, parameters
from jitney.capture.marks import stays_python
from jitney.capture.original_functions import unfollowable
from jitney.config import config
from jitney.errors import BackendFailed, CaptureError, GuardError, JitneyError, RecompileError, Unsupported
from jitney.guards.program import MISS
from jitney.runtime import frame_cache, stance
from jitney.runtime.continuation import Continuation, EagerRun, run_continuations, taking_call
from jitney.runtime.entry import CaptureFault, CodeEntries, Entry, FrameState, Session, group_of
from jitney.runtime.recompile_reasons import RecompileReason, recompile_reason, recompile_reasons
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.cache.recipes import Recipe, Writer
    from jitney.capture.codegen.call_through import CallThrough
    from jitney.capture.interpreter.resume import Layout
    from jitney.capture.interpreter.resume_serialization import Place
    from jitney.runtime.package_frames import PackageFrames

MAX_GROUPS = 32
RACES = 3  # times that guards may not hold at once, where other threads run


@functools.cache
def compiler() -> types.ModuleType:
    """``compile_frame.py``, imported at the first miss: a process that finds every frame on disk goes without."""
    from jitney.runtime import compile_frame

    return compile_frame


class Dispatcher(CodeEntries):
    """Runs calls of one code object: by an entry, a frame on disk, a new entry, or eagerly."""

    def publish(self) -> None:
        """Offer the entries to the fast path."""
        self.functions = tuple(e.function for e in self.entries)

    @property
    def home(self) -> Root | None:
        """The function with whose frames these are stored for other processes; None if they are not."""
        return None

    @property
    def passes_on(self) -> bool:
        """Do the calls of the frame, run eagerly, go through the compiler?"""
        return self.state is not FrameState.CAPTURE and not (self.session.frozen.on or self.runs_plainly)

    def failed(
        self, error: Exception, blame: BackendFailed | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Continuation:
        """A graph failed before anything was written: the frame runs eagerly, to fail (or not) as eager does."""
        code = self.shown
        events.emit(events.GraphFailed(self.target.name, code.co_filename, code.co_firstlineno, error, blame))
        return Continuation(EagerRun(self, error, blame, kwargs), args)

    def accuse(self, blame: BackendFailed) -> None:
        """A backend's graph failed where the captured one does not: raised under ``fullgraph``, else said once."""
        if self.session.fullgraph:
            raise blame
        code = self.shown
        events.emit(events.FrameSkipped(self.target.name, code.co_filename, code.co_firstlineno, blame.reason))
        if not self.incidents.backend:
            self.incidents.backend = True
            callers.warn(f"{error_text(blame)}\n(calls for which it raises run eagerly)")

    def point(self, code: types.CodeType, index: int, layout: Layout, namespace: dict[str, Any]) -> Point:
        """The rest of a frame from this instruction on; made once, for the first function that comes there."""
        session = self.session
        key = (code, index, layout, id(namespace))
        found = session.points.get(key)
        if found is None:
            from jitney.capture.interpreter.resume_serialization import Place  # at the first graph break

            place = Place(code, index, layout, namespace)
            found = Point(session, place.target(), self.home, place)
            if session.shown is not None and callers.is_ours(code.co_filename):
                found.shown = session.shown
            found = session.points.setdefault(key, found)  # frames from disk are made without the session's lock
        assert isinstance(found, Point)
        return found

    def call_through(self) -> CallThrough:
        """What answers for the callees of code that runs in Python, the same in the whole session."""
        session = self.session
        if session.through is None:
            session.through = compiler().CallThrough(functools.partial(Callee, session))
        return session.through

    def _must_wait(self) -> bool:
        """Can nothing be captured just now? That is told, and what somebody has replaced is a warning, once."""
        shortage = recursion_room.shortage()
        reason = shortage or unfollowable()
        if not reason:
            return False
        code = self.shown
        events.emit(events.FrameSkipped(self.target.name, code.co_filename, code.co_firstlineno, reason))
        if not (shortage or self.incidents.replaced):
            self.incidents.replaced = True
            where = f"{code.co_filename}:{code.co_firstlineno}, in {self.target.name}"
            callers.warn(f"{where}: {reason}, which capture relies on; calls run eagerly until it is as it was")
        return True

    def _is_full(self, args: tuple[Any, ...]) -> bool:
        """Has it all forms that calls about such modules may have, and has it said why? Finding out takes long."""
        if not self.incidents.limit or config.error_on_recompile:
            return False
        return self._forms(group_of(args)) >= config.cache_size_limit

    def miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """No entry held: capture, or run eagerly. User code runs outside the lock."""
        if torch_private.transforms_active():  # vmap, grad... of torch.func around it: they see the program itself
            return self.eager(args, kwargs)
        if torch_private.is_traced():  # and so do torch's tracers
            return self.plainly(args, kwargs)
        name = stance.current()
        if stance.active or name != "default":
            result = self._under_stance(name, args, kwargs)
            if result is not MISS:
                return result
        if self.state is FrameState.CAPTURE and (self._is_full(args) or self._must_wait()):
            return self.eager(args, kwargs)
        result = self._from_disk(args, kwargs)
        if result is not MISS:
            return result
        compiler()  # its imports come before what it does
        tried: tuple[Any, ...] | None = None
        while self.state is FrameState.CAPTURE and not self.session.frozen.on:
            with self.session.lock:
                current = self.functions
                with torch_private.outside_torch_compile():
                    grown = self._grow(args, kwargs) if current is tried or not current else None
            if current is tried or not current:
                if grown is None:
                    break
                result = self._first_run(frame_cache.FrameSerialization(self, grown), args, kwargs)
                if result is not MISS:
                    return result
                self._never_holds(grown, *self.scope(args, kwargs))
                break
            for function in current:  # another thread may have made the one that fits
                result = function(*args, **kwargs)
                if result is not MISS:
                    return result
            tried = current
        return self.leave(args, kwargs)

    def _under_stance(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result under a stance of this thread or of another; ``MISS``: this one may compile."""
        if name == "force_eager":
            return self.plainly(args, kwargs)
        hidden = self.state is FrameState.ORIGINAL
        for entry in [] if hidden else list(self.entries):  # another thread's stance may keep it from them
            result = entry.function(*args, **kwargs)
            if result is not MISS:
                return result
        if name == "default" or self.state is not FrameState.CAPTURE:
            return MISS
        result = self._from_disk(args, kwargs)
        if result is not MISS:
            return result
        if name in stance.THEN_COMPILE:
            return MISS if self.entries or self.observed.ran else self.trial(name, args, kwargs)
        if name == "fail_on_recompile":
            code = self.shown
            where = f"{code.co_filename}:{code.co_firstlineno}, in {self.target.name}"
            reasons = self.recompile_reasons(args, kwargs) or []
            told = "; ".join(f"{text} (found {found})" if found else text for text, found, _ in reasons[:1])
            raise RecompileError(
                f"{where}, would be compiled{f' again: {told}' if self.entries else ''}",
                hint='set_stance("fail_on_recompile") forbids it',
            )
        return self.plainly(args, kwargs)

    def plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The frame in eager; what it calls may be compiled only where that was asked for."""
        return self.eager(args, kwargs)

    def trial(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The first call under a stance that compiles from the second on; ``MISS``: it has begun before."""
        return MISS

    def _from_disk(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that an earlier process has compiled the frame for, or ``MISS``."""
        group = group_of(args)
        home = self.home
        if home is None or self.state is not FrameState.CAPTURE or self._forms(group) >= config.cache_size_limit:
            return MISS
        result: Any = MISS
        if home.package is not None:
            result = self._first_that_holds(home.package.frames(self, args, kwargs), group, args, kwargs)
            if result is MISS:
                home.package.missed(self)
        if result is MISS and config.cache and not self.session.frozen.on:
            result = self._first_that_holds(frame_cache.load(self, args, kwargs), group, args, kwargs)
        return result

    def _first_that_holds(
        self,
        frames: Iterator[frame_cache.LoadedFrame],
        group: tuple[int, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        for found in frames:
            result = None
            try:
                result = found.function(*args, **kwargs)
            finally:  # it may raise what the program raises
                if result is not MISS:
                    self._enter(found, group)
            if result is not MISS:
                return result
        return MISS

    def _enter(self, found: frame_cache.LoadedFrame, group: tuple[int, ...]) -> None:
        with events.compiling(found.number):
            events.emit(events.FrameLoaded(*frame_cache.place(self), found.seconds))
        with self.session.lock:
            if (found.name, found.bound) in self.disk.loaded:  # a call within this one, or another thread, was first
                return
            self.disk.loaded.add((found.name, found.bound))
            self.observed.add_sizes(found.sizes)
            self.entries.insert(0, Entry(found.function, None, self.target.name, group, found.report, found.content))
            self.publish()
            if found.fixed:
                self.disk.entered.add(found.name)

    @staticmethod
    def _first_run(new: frame_cache.FrameSerialization, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            result = new.entry.function(*args, **kwargs)
        except Exception as error:
            new.raised(error)
            raise
        if result is not MISS:
            new.returned(result)
        return result

    def leave(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call comes to for which there is no entry."""
        return self.eager(args, kwargs)

    def compile_ahead(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Have an entry for a call, which does not run; if there will be none, why it runs eagerly.

        Raises:
            TypeError: the function does not take such arguments.
        """
        self.scope(args, kwargs)
        if self.state is FrameState.CALL_THROUGH:
            return "only what it calls is compiled, at the first call"
        with self.session.lock, torch_private.outside_torch_compile():
            if any(frame_cache.would_hold(self, entry, args, kwargs) for entry in [*self.entries]):
                return ""
            if self.state is FrameState.CAPTURE and self._load_ahead(args, kwargs):
                return ""
            grown = self._grow(args, kwargs, True) if self.state is FrameState.CAPTURE else None
            if grown is None:
                return self.skip_reason or "it has too many forms already (config.cache_size_limit)"
            new = frame_cache.FrameSerialization(self, grown)
        if not frame_cache.would_hold(self, grown, args, kwargs):
            self._never_holds(grown, *self.scope(args, kwargs))
            return self.skip_reason or "another thread has changed what it is compiled for"
        new.returned(None)
        return ""

    def _load_ahead(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Is there a frame in the function's package or on disk for this call? It is an entry then."""
        package = None if self.home is None else self.home.package
        group = group_of(args)
        if package is not None:
            if self._first_with_graph(package.frames(self, args, kwargs), group):
                return True
            package.missed(self)
        return bool(config.cache) and self._first_with_graph(frame_cache.load(self, args, kwargs), group)

    def _first_with_graph(self, frames: Iterator[frame_cache.LoadedFrame], group: tuple[int, ...]) -> bool:
        """Whose guards were found to hold; of one without a graph nothing is known until it runs."""
        for found in frames:
            if frame_cache.has_graph(found.function):
                self._enter(found, group)
                return True
        return False

    def _grow(self, args: tuple[Any, ...], kwargs: dict[str, Any], ahead: bool = False) -> Entry | None:
        """Compile one more entry for this call; None where the call runs eagerly."""
        try:
            arguments, cells = self.scope(args, kwargs)
        except TypeError:  # a call that the function itself refuses, in its own words
            return None
        group = group_of(args)
        with events.compiling():
            if self.entries and not self._may_recompile(arguments, cells, group):
                return None
            entry = self._compile(arguments, cells, self._forms(group), ahead)
        if entry is not None:
            entry.group = group
        return entry

    # ------------------------------------------------------------------ compiling

    def _compile(self, arguments: dict[str, Any], cells: tuple[Any, ...], forms: int, ahead: bool) -> Entry | None:
        warn_of_settings()
        try:
            entry: Entry = compiler().compile_frame(self, arguments, cells, forms, ahead)
        except GiveUp as reason:
            self._record(arguments, cells, reason)
            self._give_up(reason)
            return None
        except JitneyError as error:
            if isinstance(error, Unsupported):
                self._record(arguments, cells, error)
            raise
        except CaptureFault as fault:
            self._record(arguments, cells, fault.error)
            self._our_fault(fault.error, fault.user_stack)
            return None
        self.entries.insert(0, entry)
        self.publish()
        return entry

    # ------------------------------------------------------------------ when it does not work

    def _record(self, arguments: dict[str, Any], cells: tuple[Any, ...], error: BaseException) -> None:
        """Tell the extensions of a frame whose capture fails."""
        target = self.target
        capture_failed(FailedFrame(target.function, target.code, target.globals, arguments, cells, error))

    def _forms(self, group: tuple[int, ...]) -> int:
        return sum(entry.group == group for entry in self.entries)

    def _may_recompile(self, arguments: dict[str, Any], cells: tuple[Any, ...], group: tuple[int, ...]) -> bool:
        count = self._forms(group)
        if not count and len(self.entries) < MAX_GROUPS * config.cache_size_limit:
            return True
        expected, found, line = recompile_reason(self.entries[0], arguments, cells)
        text = f"{expected} (found {found})" if found else expected
        read = f", read at {line}" if line else ""
        code = self.shown
        where = f"{code.co_filename}:{code.co_firstlineno}"
        place = (self.target.name, code.co_filename, code.co_firstlineno)
        if config.error_on_recompile:
            raise RecompileError(
                f"{where}, in {self.target.name}, would be compiled again: {text}{read}",
                hint="dynamic=True or mark_dynamic, if sizes change; config.error_on_recompile = False compiles it",
            )
        if count < config.cache_size_limit:
            events.emit(events.Recompiled(*place, text, line or where, len(self.entries), expected, found))
            return True
        if not self.incidents.limit:
            self.incidents.limit = True
            callers.warn(
                f"{where}, in {self.target.name}: compiled {count or len(self.entries)} times "
                f"(config.cache_size_limit); other calls run eagerly. The guard that kept failing: {text}{read}"
            )
            events.emit(events.LimitReached(*place, text, len(self.entries)))
            events.emit(events.FrameSkipped(*place, f"cache_size_limit; last guard: {text}"))
        return False

    def recompile_reasons(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[RecompileReason] | None:
        """Why each entry does not hold for a call; None if one may hold, or there are none."""
        return recompile_reasons(self.entries, *self.scope(args, kwargs))

    def _never_holds(self, entry: Entry, arguments: dict[str, Any], cells: tuple[Any, ...]) -> None:
        """Guards that fail on the values they were made from: from now on eagerly, unless a thread changed these."""
        if threading.active_count() > 1 and self.incidents.races < RACES:
            self.incidents.races += 1
            return
        text, found, _ = recompile_reason(entry, arguments, cells)
        said = f"{text} (found {found})" if found else text
        reason = f"a guard does not hold on the values it was made from: {said}"
        if config.verify:
            raise GuardError(reason)
        self.skip_frame(reason)

    def _give_up(self, reason: GiveUp) -> None:
        if self.session.fullgraph:
            raise Unsupported(f"the frame cannot be captured: {reason.reason}", hint=reason.hint) from None
        self.runs_plainly = reason.plainly
        self.skip_frame(reason.reason)

    def _our_fault(self, error: Exception, user_stack: tuple[FrameSummary, ...]) -> None:
        code = self.shown
        fault = CaptureError(
            f"a bug of jitney's while capturing {code.co_qualname} ({code.co_filename}:{code.co_firstlineno}): "
            f"{type(error).__name__}: {error}",
            user_stack=user_stack,
            hint="config.suppress_errors = True runs such frames eagerly; please report it",
            command="JITNEY_REPLAY_RECORD_ENABLED=1 python ..., the same program again; then jitney replay FILE",
        )
        fault.__cause__ = error
        if not config.suppress_errors:
            raise fault
        callers.warn(f"{error_text(fault)}\n(the frame runs eagerly: config.suppress_errors)")
        self.skip_frame(f"a bug of jitney's: {type(error).__name__}: {error}")

    def skip_frame(self, reason: str) -> None:
        """Run the frame eagerly from now on."""
        code = self.shown
        self.state, self.skip_reason = FrameState.EAGER, reason
        events.emit(events.FrameSkipped(self.target.name, code.co_filename, code.co_firstlineno, reason))


class Root(Dispatcher):
    """The function that the user compiled."""

    def __init__(self, session: Session, function: types.FunctionType) -> None:
        super().__init__(session, Target(function.__code__, function.__globals__, function))
        self.function = function
        self._choose_state(self.target.code)
        self.defaults, self.named_defaults = function.__defaults__, function.__kwdefaults__
        self.package: PackageFrames | None = None  # frames that ``jitney.load`` has brought
        if session.shown is not None and callers.is_ours(self.shown.co_filename):
            self.shown = session.shown

    def _choose_state(self, code: types.CodeType) -> None:
        """Capture it, unless it is marked or not asked for (``config.debug_function``); ``code`` has its name."""
        asked = not config.debug_function or config.debug_function in (code.co_name, code.co_qualname)
        captured = asked and not stays_python(self.function)
        self.state = FrameState.CAPTURE if captured else FrameState.CALL_THROUGH

    def publish(self) -> None:
        """Offer the entries to the fast path, unless they must not run in some thread."""
        with stance.lock:
            hidden = self.state is FrameState.ORIGINAL or stance.forced()
            self.functions = () if hidden else tuple(e.function for e in self.entries)

    @property
    def home(self) -> Root | None:
        """Itself."""
        return self

    def plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the user's function, and nothing else."""
        return self.function(*args, **kwargs)

    def trial(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call without what is to be compiled, whose numbers and sizes are noted."""
        with contextlib.suppress(TypeError):  # a call that the function itself refuses
            self.observed.add_arguments(self.scope(args, kwargs)[0])
        if name == "eager_then_compile" or type(self) is not Root:
            return self.plainly(args, kwargs)
        other = Root(Session(resolve("aot_eager"), self.session.fullgraph, self.session.dynamic), self.function)
        other.observed.ran = True
        return other(*args, **kwargs)

    def _follow(self) -> None:
        """The user gave the function another code, or other defaults: the emitted functions get these too."""
        own = self.function
        if own.__code__ is not self.target.code:
            self.forget()
            self.target, self.shown, self.package = Target(own.__code__, own.__globals__, own), own.__code__, None
            self._choose_state(own.__code__)
        self.defaults, self.named_defaults = own.__defaults__, own.__kwdefaults__
        for entry in list(self.entries):
            self.target.lend(entry.function)

    def compile_ahead(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Have an entry for a call of the function as it is now."""
        self._follow()
        return super().compile_ahead(args, kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the first entry that holds."""
        own = self.function
        if own.__defaults__ is not self.defaults or own.__kwdefaults__ is not self.named_defaults:
            self._follow()
        if own.__code__ is not self.target.code:
            self._follow()
        if torch_private.COMPILER in sys.modules and stance.current() == "force_eager":
            return self.plainly(args, kwargs)
        for function in self.functions:
            result = function(*args, **kwargs)
            if result is not MISS:
                return run_continuations(result) if type(result) is Continuation else result
        return run_continuations(self.miss(args, kwargs))

    def eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the user's function."""
        function = self.call_through().native(self.function) if self.passes_on else self.function
        return function(*args, **kwargs)

    def scope(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Bound as the function's own signature binds them; its cells are read from the function."""
        bound = self.target.bind(args, kwargs)
        return {n: bound[n] for n in parameters(self.target.code)}, ()


class Callee(Root):
    """What a frame that runs by call-through calls. The callee is the first argument of ``function``."""

    def __init__(self, session: Session, function: types.FunctionType, code: types.CodeType | None) -> None:
        super().__init__(session, function)
        self.shown = code or self.shown
        self._choose_state(self.shown)

    @property
    def home(self) -> Root | None:
        """Nobody's: its frames are not stored."""
        return None

    def plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the callee as it is."""
        callee, *rest = args
        return callee(*rest, **kwargs)

    def eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the callee."""
        callee, *rest = args
        function = self.call_through().native(callee) if self.passes_on else callee
        return function(*rest, **kwargs)


class Point(Dispatcher):
    """The rest of a frame after a break. Calling it makes a ``Continuation``; ``run`` runs it."""

    def __init__(self, session: Session, target: Target, home: Root | None = None, place: Place | None = None) -> None:
        super().__init__(session, target)
        self._home = home
        self._place = place

    @property
    def home(self) -> Root | None:
        """The function whose rest it is."""
        return self._home

    @property
    def place(self) -> Place | None:
        """Where in the function it begins."""
        return self._place

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        """As what later processes make it again."""
        if self._place is None:
            raise NotStorable("the rest of a frame whose place is unknown")
        return self._place.recipe(writer)

    def __call__(self, *args: Any) -> Continuation:
        """What emitted code returns for the rest of its frame."""
        return Continuation(self, args)

    def run(self, *args: Any) -> Any:
        """Run the rest of the frame; its value, or a ``Continuation``."""
        for function in self.functions:
            result = function(*args)
            if result is not MISS:
                return result
        return self.miss(args, {})

    def leave(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Given up for good: ``run_continuations`` calls ``release``."""
        return Continuation(self, args) if self.state is FrameState.EAGER else self.eager(args, kwargs)

    def release(self, rest: Continuation) -> Any:
        """Run the rest of the frame eagerly; the frame alone holds its variables: it may tell when they are dropped."""
        function, values = self._rest(rest.args)
        rest.args = ()
        values.reverse()
        return taking_call(len(values))(function, values.pop)

    def eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the rest of the frame; the first arguments are its cells."""
        function, values = self._rest(args)
        return function(*values)

    def _rest(self, args: tuple[Any, ...]) -> tuple[types.FunctionType, list[Any]]:
        target = self.target
        count = len(target.code.co_freevars)
        code = self.call_through().code(target.code) if self.passes_on else target.code
        function = types.FunctionType(code, target.globals, target.name, None, args[:count] or None)
        return function, list(args[count:])

    def scope(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """By position: cells first, then what the layout says."""
        count = len(self.target.code.co_freevars)
        return dict(zip(parameters(self.target.code), args[count:], strict=True)), tuple(args[:count])
