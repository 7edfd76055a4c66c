"""From a frame about to run to an emitted function: attempts, restarts, and the report of what happened."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from traceback import FrameSummary
from typing import Any

import torch
from torch import fx

from jitney import events
from jitney.capture.codegen import cleanups
from jitney.capture.codegen.emit import Emitted, Emitter, MakePoint
from jitney.capture.directive_rules import breaks_are_errors
from jitney.capture.interpreter.binding import closure_cells
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.frame import Frame, make_frame
from jitney.capture.interpreter.iterators import reaches_iterator
from jitney.capture.interpreter.loop import Loop
from jitney.capture.interpreter.opcodes import HANDLERS
from jitney.capture.interpreter.resume import pops
from jitney.capture.interpreter.signals import Break, GiveUp, Initialise, Raised, Restart, Retry, UserRaised
from jitney.capture.interpreter.target import VARARGS, VARKEYWORDS, Target, parameters
from jitney.capture.tables import Handlers
from jitney.capture.torch import lazy_modules
from jitney.capture.torch.classes import torch_function
from jitney.capture.torch.stand_in_attributes import drop_gradients
from jitney.capture.torch.symbols import asks_for_data_sizes
from jitney.capture.whole_calls import step_of_call
from jitney.capture.world import late_warnings
from jitney.capture.world.size_changes import size_changes
from jitney.config import config
from jitney.errors import CaptureError
from jitney.guards import Source
from jitney.guards.reentry import is_programs
from jitney.torch_compat import torch_private
from jitney.torch_compat.default_device import devices, lifted, within
from jitney.torch_compat.global_state import StateKeeper, state_check

FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")
MAX_RESTARTS = 64
TOO_DEEP = "calls nest too deep to interpret"
LOOKS_AT = {"FOR_ITER": 1, "SEND": 2}  # instructions that advance what they leave on the stack


@dataclass(slots=True)
class Settings:
    """What capture asks of its surroundings."""

    dynamic_dims: Callable[[Any, Source], list[bool]]
    foresee_sizes: Callable[[Any, Source, tuple[int | None, ...]], bool]
    dynamic_number: Callable[[Source, Any], bool]
    steady: Callable[[Source, Any], bool]
    make_point: MakePoint
    drive: Callable[[Any], Any]
    through: Callable[[Any], Any]
    handlers: Handlers
    max_steps: int
    has_regions: bool = False
    drops_gradients: bool = False  # those that the frame ends with, where it has begun without
    whole: bool = False  # is a graph break an error?
    foresees: bool = True  # may branches on tensors of the host be guarded?
    # Is a graph with sizes that depend on data better than a break, where nobody has asked for them?
    takes_data_sizes: Callable[[fx.GraphModule, list[Any]], bool] | None = None
    fault_stack: tuple[FrameSummary, ...] = ()  # the user's lines that were interpreted when capture raised


@dataclass(slots=True)
class Captured:
    """One successful capture."""

    emitted: Emitted
    graph_break: events.GraphBreak | None
    seconds: float
    user_stack: tuple[FrameSummary, ...]
    error: bool | None = None  # is the break an error? None: if the whole is to be one graph
    initialised: list[lazy_modules.Initialisation] = field(default_factory=list)  # to undo if there is no graph

    def verify(self) -> None:
        """Check the graph and that each node says what it computes; raises ``CaptureError``."""
        graph = self.emitted.graph
        if graph is None:
            return
        graph.graph.lint()
        for node in graph.graph.nodes:
            if node.op != "output" and "example_value" not in node.meta:
                raise CaptureError(f"the node {node.format_node()} has no example value")
        inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
        outputs = next(iter(reversed(graph.graph.nodes))).args[0]
        if (len(inputs), len(outputs)) != (len(self.emitted.inputs), self.emitted.outputs):
            raise CaptureError("the graph has another number of inputs or outputs than the emitted code")


def capture(target: Target, arguments: dict[str, Any], cells: tuple[Any, ...], settings: Settings) -> Captured:
    """Capture one frame. ``arguments`` are its parameters by name, ``cells`` a resume function's cells.

    Raises:
        GiveUp: the frame must run eagerly.
    """
    if devices() is None or torch_private.dispatch_mode_depth():
        raise GiveUp("a torch function or dispatch mode is active", "leave the mode before calling compiled code")
    check, outside = state_check(), sys.exception()
    initialised: list[lazy_modules.Initialisation] = []
    with lifted() as modes:
        try:
            return _captured(_Start(target, arguments, cells, settings, check, modes, outside), initialised)
        except BaseException:
            lazy_modules.undo(initialised)
            raise


@dataclass(frozen=True, slots=True)
class _Start:
    """What each attempt at a frame begins with."""

    target: Target
    arguments: dict[str, Any]
    cells: tuple[Any, ...]
    settings: Settings
    check: Callable[[], bool]  # is the global state still as it was when the frame was called?
    modes: list[Any]  # those that set a default device
    outside: BaseException | None  # what is being handled where the frame was called


def _captured(start: _Start, initialised: list[lazy_modules.Initialisation]) -> Captured:
    """Attempts until one comes to an end, in the program's default device."""
    settings = start.settings
    begin = time.perf_counter()
    forced: dict[int, Restart] = {}
    lazy: lazy_modules.Initialisation | None = None
    unable: set[int] = set()  # lazy modules that refuse the arguments: the program's call is to raise
    reads_ahead = goes_eagers_way = False
    plain: set[int] = set()  # steps at which nothing is tried
    data_sizes = settings.takes_data_sizes is not None and not asks_for_data_sizes(settings.whole)
    for _ in range(MAX_RESTARTS):
        if lazy is not None:  # capture has let go of its own random numbers and modes
            lazy_modules.run(lazy, initialised, unable)
            lazy = None
        vm = Loop(
            settings.handlers,
            dynamic_dims=settings.dynamic_dims,
            is_dynamic=settings.dynamic_number,
            steady=settings.steady,
            forced=forced,
            max_steps=settings.max_steps,
            outside=start.outside,
            has_regions=settings.has_regions,
            whole=settings.whole,
            foresees=settings.foresees,
            data_sizes=data_sizes,
        )
        vm.reads_ahead, vm.goes_eagers_way = reads_ahead, goes_eagers_way
        vm.classes_asked |= unable
        vm.plain_steps |= plain
        keeper = StateKeeper()
        quiet = FAKE_LOG.disabled
        FAKE_LOG.disabled = True  # what fails on stand-ins becomes a break with a reason; torch would print it too
        rng = torch.get_rng_state()
        try:
            made, stopped = _attempt(vm, start)
            changes = [settings.foresee_sizes(*change) for change in size_changes(vm.world)]
        except Restart as restart:
            if vm.asked_compiling and isinstance(restart.__context__, Raised | UserRaised):
                goes_eagers_way = True  # what the program does under compilation raises
                _let_go(restart, start.outside)
                forced.clear()
                lazy_modules.undo(initialised)
                continue
            restart.place = next(((f.info.code, f.at) for f in vm.frames if f.step == restart.step), None)
            known = forced.get(restart.step)
            if known is not None and known.place == restart.place:
                raise GiveUp(restart.reason, restart.hint) from None
            _let_go(restart, start.outside)
            forced[restart.step] = restart
            lazy_modules.undo(initialised, restart.step)
            continue
        except Retry as retry:
            _let_go(retry, start.outside)
            plain.add(retry.step)
            lazy_modules.undo(initialised)
            continue
        except GiveUp:
            if not (data_sizes and vm.symbols.data_dependent()):
                raise
            data_sizes = False
            forced.clear()
            continue
        except Initialise as found:
            lazy = found.initialisation
            _let_go(found, start.outside)
            continue
        except RecursionError:  # a structure that is too deep to write down, or to expose
            raise GiveUp(TOO_DEEP) from None
        except Exception as error:
            if entered := _raised_in(error, settings.handlers):
                raise GiveUp(f"{entered}, which C code has called, raises {type(error).__name__}") from None
            settings.fault_stack = vm.user_stack()
            raise
        finally:
            vm.over = True
            FAKE_LOG.disabled = quiet
            keeper.restore()
            torch.set_rng_state(rng)
            vm.frames.clear()
            vm.world.forget_values()
            vm.raised_at.clear()
            vm.arrays.clear()
            vm.adopted_arrays.clear()
        if any(changes):
            continue
        if stopped is not None and settings.whole and vm.may_read_ahead:  # for sizes and branches it may do
            reads_ahead = True
            forced.clear()
            continue
        if data_sizes and not _worth_data_sizes(vm, made, stopped, settings):
            data_sizes = False  # once more, with a break at the first of them
            forced.clear()
            continue
        made.complete()
        stack = stopped.user_stack if stopped is not None else ()
        captured = Captured(made, stopped, time.perf_counter() - begin, stack, vm.break_is_error, initialised)
        if config.verify:
            captured.verify()
        return captured
    raise GiveUp(f"capture started over {MAX_RESTARTS} times")


def _worth_data_sizes(vm: Loop, made: Emitted, stopped: events.GraphBreak | None, settings: Settings) -> bool:
    """Are there fewer breaks for sizes that depend on data, and is the graph one that the backend takes?"""
    count = vm.symbols.data_dependent()
    if not count:
        return True
    takes, graph = settings.takes_data_sizes, made.graph
    return bool(takes and graph and count > (stopped is not None) and takes(graph, made.inputs))


def _attempt(vm: Loop, start: _Start) -> tuple[Emitted, events.GraphBreak | None]:
    target, settings = start.target, start.settings
    stopped: events.GraphBreak | None = None
    value: Any = None
    # The scopes close last in, first out: what the program itself has entered before the modes of capture.
    with vm.symbols.fake_mode, vm.tracer, within(start.modes), contextlib.closing(_Scopes(vm)):
        try:
            vm.frames.append(_root(vm, target, start.arguments, start.cells))
            _refuse_entered(vm)
            value = vm.run()
            vm.waiting_generators.finish(value)
            torch_function.refuse_open(vm)
            if vm.pending is not None:
                raise vm.pending
            if settings.drops_gradients:
                drop_gradients(vm)
        except Break as reason:
            if isinstance(reason, Raised) and vm.asked_compiling:
                raise Restart(vm.break_step(), reason.reason) from None
            stopped = _stop(vm, reason)
            _let_go(reason, start.outside)
        except UserRaised as raised:
            error, step = vm.raised_at[id(raised.value)]
            raise Restart(step, _told(error)) from None
        except RecursionError:  # the interpreter's own, which takes many calls for one of the program's
            if not vm.nesting:
                raise GiveUp(TOO_DEEP) from None
            raise Restart(vm.break_step(), TOO_DEEP, "recursion this deep runs eagerly") from None
        if stopped is None or vm.break_is_error is False:
            vm.tracer.tape.check_reduced()
        vm.elsewhere.settle()
        for record in [*vm.world.records.values()]:
            record.fix_keys()  # emitted code writes constants
        vm.over = True
        vm.tracer.pause = True
        emitter = Emitter(vm, target.signature(), start.check, settings.drive, settings.make_point, settings.through)
        try:
            with torch_private.without_modes(), _watched(vm):
                made = emitter.returned(value) if stopped is None else emitter.broken()
        except Break as reason:
            raise GiveUp(reason.reason, reason.hint) from None
        _refuse_entered(vm)
    return made, stopped


def _raised_in(error: Exception, handlers: Handlers) -> str | None:
    """The function of the program's that raised while capture handled its objects, such as a ``__hash__``."""
    modules = handlers.modules | {handler.__module__ for handler in HANDLERS.values()}  # capture's, whoever wrote them
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") not in modules and is_programs(frame.f_code, frame.f_globals):
            return frame.f_code.co_qualname
    return None


def _refuse_entered(vm: Loop) -> None:
    """Where reading the arguments, or writing the emitted code, has run code of the program's."""
    if vm.witness is not None and vm.witness.latest:
        raise GiveUp(vm.witness.latest)


def _watched(vm: Loop) -> contextlib.AbstractContextManager[Any]:
    """The watch, if objects whose special methods the program has written are made anew or put into something."""
    if vm.watch is None or not vm.watch.met:
        return contextlib.nullcontext()
    touched = [*vm.world.fresh.values()]
    for record in vm.world.records.values():
        if record.dirty:
            touched += [record.value, record.content, *record.overlay.items(), *record.slots.values(), *record.pending]
    for value in touched[:]:
        if type(value) in (list, tuple, set, frozenset, dict):
            touched += [*value, *(value.values() if type(value) is dict else ())]
    return vm.watch if vm.watch.over(touched) else contextlib.nullcontext()


class _Scopes:
    """The blocks of inference mode, and of warnings that are filtered, that the captured program has entered."""

    def __init__(self, vm: Loop) -> None:
        self.vm = vm

    def close(self) -> None:
        self.vm.tracer.close_scopes()
        late_warnings.close(self.vm)


def _told(error: BaseException) -> str:
    """Which exception is raised; its text only where no code of the program's makes it."""
    kind = type(error)
    plain = not isinstance(kind.__str__, types.FunctionType) and all(type(v) in (str, int, float) for v in error.args)
    text = str(error) if plain else ""
    return f"{kind.__name__} is raised: {text}" if text else f"{kind.__name__} is raised"


def _let_go(error: BaseException, outside: BaseException | None) -> None:
    """Drop what an exception of ours keeps alive: the interpreter's frames, and with them the user's objects.

    Its contexts end with what the program itself is handling, which stays as it is.
    """
    seen: BaseException | None = error
    while seen is not None and seen is not outside:
        traceback.clear_frames(seen.__traceback__)
        seen.__traceback__ = None
        seen.__context__, seen = None, seen.__context__


def _stop(vm: Loop, reason: Break) -> events.GraphBreak:
    """The break as an event; a restart first where the broken instruction has already done something."""
    frame = vm.frames[-1]
    stack = vm.user_stack()
    known = vm.forced.get(frame.step)
    if known is not None and known.user_stack:
        stack = known.user_stack
    torch_function.refuse_open(vm, reason.reason)
    whole = step_of_call(vm)
    if whole is not None:
        raise Restart(whole, reason.reason, reason.hint, stack)
    undone = vm.nesting or vm.steps != frame.step or vm.tracer.op_count != vm.nodes_before
    asked_for = known is not None and known.is_at(frame.info.code, frame.at)  # then the instruction has not begun
    if undone or (not asked_for and _takes_iterator(vm, frame)):
        raise Restart(vm.break_step(), reason.reason, reason.hint, stack)
    vm.break_is_error = breaks_are_errors(vm)
    return events.GraphBreak(reason.reason, reason.hint, stack)


def _takes_iterator(vm: Loop, frame: Frame) -> bool:
    """May the instruction have taken something from an iterator that its operands lead to?"""
    instr = frame.instrs[frame.at]
    try:
        taken = LOOKS_AT.get(instr.op) or pops(instr)[0]
    except KeyError:  # nobody says what it reads
        return True
    return reaches_iterator(vm, frame.saved[len(frame.saved) - taken :])


def _root(vm: Loop, target: Target, arguments: dict[str, Any], cells: tuple[Any, ...]) -> Frame:
    """The outermost frame, its arguments wrapped with their sources."""
    code = target.code
    world = vm.world
    sources = {name: world.local(name) for name in arguments}
    values: dict[str, Any] = {}
    varargs = varkeywords = None
    names = parameters(code)
    if target.function is not None:
        extra = list(names[code.co_argcount + code.co_kwonlyargcount :])
        varargs = extra.pop(0) if code.co_flags & VARARGS else None
        varkeywords = extra.pop(0) if code.co_flags & VARKEYWORDS else None
    frame = Frame(decode(code), target.globals, {}, {}, target.function)
    vm.frames.append(frame)
    try:
        for name, value in arguments.items():
            source = sources[name]
            if name == varargs:
                world.guard(source, "len", len(value))
                values[name] = tuple(world.wrap(v, source.item(i)) for i, v in enumerate(value))
            elif name == varkeywords:
                world.guard(source, "keys", list(value))
                values[name] = world.mark_fresh({k: world.wrap(v, source.item(k)) for k, v in value.items()})
            else:
                if target.function is None:
                    cleanups.guard(world, value, source)
                values[name] = world.wrap(value, source)
    except Break as reason:
        raise GiveUp(reason.reason, reason.hint) from None
    finally:
        vm.frames.pop()
    if target.function is not None:
        frame = make_frame(target.function, values)
        if code.co_freevars:
            world.add(target.function, world.const(target.function))
            frame.cells.update(zip(code.co_freevars, closure_cells(vm, target.function), strict=True))
        return frame
    frame.locals = values
    for i, (name, cell) in enumerate(zip(code.co_freevars, cells, strict=True)):
        world.add(cell, world.local(f"_cell{i}"))
        frame.cells[name] = cell
    return frame
