"""What a capture is to its handlers: ``vm``, its state and what they ask of it. ``loop.py`` runs the bytecode."""

from __future__ import annotations

import abc
import builtins
import re
import types
import weakref
from collections.abc import Callable
from traceback import FrameSummary
from typing import Any

import torch

from jitney._util.caller_frame import call_here
from jitney._util.callers import is_ours
from jitney.capture.interpreter.frame import After, ExcInfo, Frame, may_handle
from jitney.capture.interpreter.signals import Break, GiveUp, Restart, UserRaised
from jitney.capture.kinds import STAND_INS
from jitney.capture.numpy.other_devices import Elsewhere
from jitney.capture.original_functions import PROTOCOLS
from jitney.capture.policy import is_torch_op
from jitney.capture.tables import Handlers
from jitney.capture.world.record import LogCall, Record
from jitney.capture.world.world import World
from jitney.guards import Source
from jitney.guards.reentry import ReentryWatch
from jitney.torch_compat import torch_private

# Where C code names what it was given: a stand-in, where eager gives a tensor or a number of Python.
STAND_IN_CLASS = re.compile(r"\b(Sym(Int|Float|Bool)|FakeTensor|Array)\b")
MAX_DEPTH = 400


class Interpreter(abc.ABC):
    """One attempt to capture one frame (and what it calls).

    Args:
        world: what is older than the frame.
        handlers: of functions and arrays.
        outside: what the caller of compiled code is handling.
        has_regions: does the backend compute checkpointed regions again?
        witness: sees the program's code run.
    """

    def __init__(
        self,
        world: World,
        handlers: Handlers,
        outside: BaseException | None,
        has_regions: bool,
        witness: ReentryWatch | None,
    ) -> None:
        self.world = world
        self.handlers = handlers
        self.outside = outside
        self.has_regions = has_regions
        self.foresees = True  # may branches on tensors of the host be guarded?
        self.reads_ahead = False  # are numbers of such tensors read ahead of a graph that could read them?
        self.goes_eagers_way = False  # does the program take itself for eager, where it asks whether it is compiled?
        self.asked_compiling = False  # has it asked, and was told that it is?
        self.plain_steps: set[int] = set()  # at which what was tried in an earlier attempt is not tried again
        self.may_read_ahead = False  # has the frame read one that could have been?
        self.witness = witness
        self.watch = world.watch
        self.tracer = world.tracer
        self.symbols = world.tracer.symbols
        self.frames: list[Frame] = []
        self.nesting: list[int] = []  # indices of frames whose instruction runs Python through C
        self.steps = 0
        self.returned: Any = None
        self.handling: BaseException | None = None
        self.raised_at: dict[int, tuple[BaseException, int]] = {}
        self.asks_outside = False  # does anything depend on whether ``outside`` is something?
        self.arrays: dict[int, Any] = {}  # id(array or scalar from outside) -> its stand-in
        self.adopted_arrays: list[Any] = []
        self.elsewhere = Elsewhere()
        self.arrays_raise = False  # has the graph operations of NumPy that raise for some values?
        self.cell_owners: dict[int, types.CodeType] = {}  # id(fresh cell) -> the code whose variable it is
        self.rows: list[Any] = []  # copies of rows in place of views, see ``rows.check``
        self.masked_updates: list[Any] = []  # ``x[mask] += y`` that have not been put back
        self.claimed_iterators: list[tuple[Any, Source]] = []  # from outside, advanced by the frame
        self.class_writes: dict[int, Record] = {}  # classes older than the frame that it has written to
        self.listed_classes: set[int] = set()  # ids of such whose ``__dict__`` it has read, which shows later writes
        self.supers: dict[Any, Any] = {}  # those of tensors: ``super()`` and the stand-in
        self.log_calls: list[LogCall] = []
        self.stepped: list[Any] = []  # optimizers, see ``optimizers.waiting_steps``
        self.draws: list[Any] = []  # numbers of Python's random generators, see ``draws.draw``
        self.generators: dict[int, tuple[Any, Any, int]] = {}  # see ``sequences/generators.py``
        self.warned: list[Any] = []  # warnings that wait for the graph, see ``late_warnings``
        self.filter_blocks: list[Any] = []  # of warnings.catch_warnings, the innermost last
        self.classes_asked: set[int] = set()  # of lazy modules, see ``lazy_modules``
        # Generators that wait in a try or with by their id, and how each was reached, see ``WaitingGenerators``.
        self.waiting: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self.handled = False  # is an operation of the graph within a ``try`` of the program's?
        self.in_helper = False  # inside a function that calls a logger and does nothing else
        self.nodes_before = 0
        self.over = False  # nothing may be interpreted any more
        self.pending: Restart | GiveUp | None = None  # raised at the next instruction
        self.break_is_error: bool | None = None  # what the program says of the break at which the capture ends

    # ------------------------------------------------------------------ where are we

    def user_line(self) -> FrameSummary | None:
        """The innermost line being interpreted; None where it is ours."""
        frame = self.frames[-1] if self.frames else None
        return None if frame is None or is_ours(frame.info.code.co_filename) else frame.info.summary(frame.at)

    def user_stack(self) -> tuple[FrameSummary, ...]:
        """All lines being interpreted, outermost first; ours (what calls a module) only if there are no others."""
        users = [f for f in self.frames if not is_ours(f.info.code.co_filename)]
        return tuple(f.info.summary(f.at) for f in users or self.frames)

    def operation_stack(self) -> tuple[FrameSummary, ...]:
        """The lines of an operation that the graph gets; it may raise when the graph runs."""
        if not self.handled:
            self.handled = any(map(may_handle, self.frames))
        return self.user_stack()

    def break_step(self) -> int:
        """The step before which capture can stop: the innermost instruction that no C code has called."""
        if not self.frames:
            return 0
        return self.frames[self.nesting[0] if self.nesting else -1].step

    def is_compiling(self) -> bool:
        """What the program is told where it asks whether it is compiled."""
        self.asked_compiling = not self.goes_eagers_way
        return self.asked_compiling

    # ------------------------------------------------------------------ frames

    @abc.abstractmethod
    def run(self) -> Any:
        """Interpret the topmost frame until it returns; its value. Raises ``UserRaised`` if it raises."""

    @abc.abstractmethod
    def unwind(self, error: BaseException, base: int, *, again: bool = False) -> None:
        """Find the handler of an exception, dropping frames down to ``base``."""

    def push_frame(self, frame: Frame) -> None:
        """Make this the frame that runs next; a break where calls nest too deep."""
        if len(self.frames) >= MAX_DEPTH:
            raise Break("calls nested too deep to inline", "recursion this deep runs eagerly")
        self.world.assumptions.enter(frame.func)
        self.frames.append(frame)

    def leave(self, value: Any) -> None:
        """Return from the topmost frame."""
        frame = self.frames.pop()
        if (self.nesting and self.nesting[-1] == len(self.frames) - 1) or not self.frames:
            self.returned = value
            return
        stack = self.frames[-1].stack
        if frame.after is After.PUSH:
            stack.append(value)
        elif frame.after is After.INSTANCE:
            stack.append(self.instance(frame.instance, value))

    def set_handling(self, error: BaseException | None) -> ExcInfo:
        """Make this the exception being handled; the marker restores the one before."""
        marker = ExcInfo(error, self.handling)
        self.handling = error
        return marker

    def ask_outside(self) -> None:
        """Captured code depends on what its caller handles: guarded to be nothing, a break where there is something."""
        if self.outside is not None:
            raise Break("the exception is read that the caller of compiled code handles")
        self.asks_outside = True

    def raise_user(self, error: BaseException) -> None:
        """Raise a new exception in the user's program."""
        raise UserRaised(error)

    # ------------------------------------------------------------------ calling

    @abc.abstractmethod
    def caller(self) -> Callable[..., Any]:
        """What calls an operation (``func, args, kwargs``) from the line that the topmost frame is at."""

    @abc.abstractmethod
    def call(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call anything and wait for its value, from inside an instruction."""

    @abc.abstractmethod
    def construct(self, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """``type.__call__`` on a class, past its metaclass."""

    @abc.abstractmethod
    def instance(self, made: Any, value: Any) -> Any:
        """What a call of a class gives whose ``__init__`` has returned ``value``."""

    @abc.abstractmethod
    def finish(self, frame: Frame) -> Any:
        """Run a frame to its end inside the current instruction. A break in it breaks before the instruction."""

    @abc.abstractmethod
    def truth(self, value: Any) -> bool:
        """bool(value), as an ``if`` takes it."""

    def native(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run C code on interpreter values; what it raises is the user's exception."""
        if id(fn) in PROTOCOLS and any(type(value) in STAND_INS for value in args):
            for name in PROTOCOLS[id(fn)]:
                self.world.guard_method(name)
        caller = self.caller() if is_torch_op(fn) else call_here
        try:
            result = caller(fn, args, kwargs) if self.watch is None else self.watch.call(fn, args, kwargs, caller)
        except (torch_private.DataDependentOutputException, torch_private.GuardOnDataDependentSymNode):
            raise Break(
                f"{getattr(fn, '__name__', fn)} needs the value of a tensor",
                "keep the value as a tensor, or move this line out of the compiled function",
            ) from None
        except RecursionError:
            raise Break("recursion too deep") from None
        except Exception as error:
            if type(error) in (TypeError, AttributeError) and STAND_IN_CLASS.search(str(error)):
                operator = is_torch_op(fn) or type(getattr(fn, "__self__", None)) in STAND_INS
                if operator and any(type(value) is torch.SymBool for value in (*args, *kwargs.values())):
                    return self.native(fn, *map(_flag, args), **{name: _flag(kwargs[name]) for name in kwargs})
                raise Break(f"{getattr(fn, '__name__', fn)} of a tensor, or of a number that changes, raises") from None
            raise UserRaised(error) from None
        except BaseException as error:
            if id(error) in self.raised_at:  # by the program, such as a SystemExit, and not by capture itself
                raise UserRaised(error) from None
            raise
        if self.world.set_orders.sizes:
            self.world.set_orders.follow(fn, args, result, self.break_step())
        return result

    def hooked(self, name: str, what: str) -> None:
        """Guard the builtin that Python calls by itself for ``what``; a break where the program has put in its own."""
        found = getattr(builtins, name)
        if type(found) is not types.BuiltinFunctionType:
            raise Break(f"{what}, with a {name} of the program's own")
        self.world.guard_path(f"builtins.{name}", found)


def _flag(value: Any) -> Any:
    """A truth value that depends on sizes (``is_causal=n > 1``), as operators take flags: guarded to be what it is."""
    if type(value) is not torch.SymBool:
        return value
    try:
        return bool(value)
    except torch_private.GuardOnDataDependentSymNode:
        raise Break("a flag of an operator needs the value of a tensor") from None
