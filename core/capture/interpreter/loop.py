"""The interpreter: runs bytecode over real Python values and stand-in tensors, frame by frame.

Handlers live in ``opcodes`` (one short function per opcode); what they need of Python's semantics lives in
``attributes``, ``operators``, ``containers``, ``calls`` and ``special``. This file is the loop, exceptions and nesting.
"""

from __future__ import annotations

import builtins
import re
import types
from collections.abc import Callable
from traceback import FrameSummary
from typing import Any

from jitney._util.callers import is_ours
from jitney.capture import directive_rules  # noqa: F401 (register handlers)
from jitney.capture.interpreter import exception_context, tracebacks
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.frame import After, ExcInfo, Frame
from jitney.capture.interpreter.opcodes import HANDLERS
from jitney.capture.interpreter.resume import origin
from jitney.capture.interpreter.signals import Break, GiveUp, Restart, UserRaised
from jitney.capture.numpy import attributes, wrap_numpy_rules  # noqa: F401 (register handlers)
from jitney.capture.numpy.adopt import adopt
from jitney.capture.numpy.other_devices import Elsewhere
from jitney.capture.numpy.stand_in import Array
from jitney.capture.original_functions import PROTOCOLS
from jitney.capture.python import copying, signatures  # noqa: F401 (register handlers)
from jitney.capture.python.calls import construct, dispatch
from jitney.capture.python.locks import LockRegions
from jitney.capture.python.logs import LogCall
from jitney.capture.python.operators import truth
from jitney.capture.record import Record
from jitney.capture.torch import (  # noqa: F401 (register handlers)
    checkpoints,
    control_flow,
    functional_calls,
    optimizers,
    scans,
    vjp,
    wrapper_subclasses,
)
from jitney.capture.torch.stand_ins import STAND_INS
from jitney.capture.torch.symbols import Symbols
from jitney.capture.torch.tensors import Tracer
from jitney.capture.world import World
from jitney.config import config
from jitney.guards import Source, reentry
from jitney.torch_compat import torch_private

# Where C code names what it was given: a stand-in, where eager gives a tensor or a number of Python.
STAND_IN_CLASS = re.compile(r"\b(Sym(Int|Float|Bool)|FakeTensor)\b")
MAX_DEPTH = 400


class Interpreter:
    """One attempt to capture one frame (and what it calls)."""

    def __init__(
        self,
        dynamic_dims: Callable[[Any, Source], list[bool]],
        forced: dict[int, Restart],
        max_steps: int,
    ) -> None:
        self.frames: list[Frame] = []
        self.nesting: list[int] = []  # indices of frames whose instruction runs Python through C
        self.steps = 0
        self.max_steps = max_steps
        self.forced = forced
        self.returned: Any = None
        self.handling: BaseException | None = None
        self.raised_at: dict[int, tuple[BaseException, int]] = {}
        self.outside: BaseException | None = None  # what the caller of compiled code is handling
        self.asks_outside = False  # does anything depend on whether there is one?
        self.symbols = Symbols(dynamic_dims)
        self.tracer = Tracer(self.symbols, self.user_stack)
        self.tracer.reads_numbers = self.reads_numbers
        self.has_regions = False  # does the backend compute checkpointed regions again?
        self.world = World(self.tracer, self.user_line)
        self.tracer.on_wrapper = lambda *facts: wrapper_subclasses.guard(self.world, *facts)
        self.tracer.on_name = self.world.guard_path
        self.tracer.on_alias = lambda a, b: self.world.relate(a, b, True)
        self.arrays: dict[int, Array] = {}  # id(array or scalar from outside) -> its stand-in
        self.adopted_arrays: list[Any] = []
        self.elsewhere = Elsewhere()
        self.arrays_raise = False  # has the graph operations of NumPy that raise for some values?
        self.world.adopt_array = lambda value, source: adopt(self, value, source)
        self.locks = LockRegions()
        self.class_writes: dict[int, Record] = {}  # classes older than the frame that it has written to
        self.log_calls: list[LogCall] = []
        self.stepped: list[Any] = []  # optimizers, see ``optimizers.waiting_steps``
        self.witness = reentry.current_watch()
        if self.witness is not None:
            self.witness.latest = ""
        self.tracer.witness = self.witness
        self.watch = reentry.needed_watch()
        self.world.watch = self.watch
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

    def reads_numbers(self) -> bool:
        """May the running frame's ``Tensor.item()`` stay in the graph?"""
        return config.capture_scalar_outputs or optimizers.in_optimizer(self)

    def user_stack(self) -> tuple[FrameSummary, ...]:
        """All lines being interpreted, outermost first; ours (what calls a module) only if there are no others."""
        users = [f for f in self.frames if not is_ours(f.info.code.co_filename)]
        return tuple(f.info.summary(f.at) for f in users or self.frames)

    def break_step(self) -> int:
        """The step before which capture can stop: the innermost instruction that no C code has called."""
        if not self.frames:
            return 0
        return self.frames[self.nesting[0] if self.nesting else -1].step

    # ------------------------------------------------------------------ the loop

    def run(self) -> Any:
        """Interpret the topmost frame until it returns; its value. Raises ``UserRaised`` if it raises."""
        frames = self.frames
        base = len(frames) - 1
        forced = self.forced
        seen, witness = self.watch, self.witness
        while True:
            if self.pending is not None:
                raise self.pending
            frame = frames[-1]
            at = frame.at = frame.ip
            instr = frame.instrs[at]
            frame.ip = at + 1
            self.steps += 1
            frame.step = self.steps
            frame.saved = frame.stack[:]
            self.nodes_before = self.tracer.op_count
            if self.steps in forced and forced[self.steps].is_at(frame.info.code, at):
                raise Break(forced[self.steps].reason, forced[self.steps].hint)
            try:
                if seen is not None and seen.over(frame.saved):
                    with seen:
                        HANDLERS[instr.op](self, frame, instr)
                else:
                    HANDLERS[instr.op](self, frame, instr)
            except UserRaised as raised:
                self.refuse_entered()
                error = raised.value
                if not (raised.again or id(error) in self.raised_at or self.world.record_of(error) is not None):
                    exception_context.raised_by_c(error, self.handling, self.outside)
                self.unwind(error, base, again=raised.again)
            except KeyError:
                if instr.op not in HANDLERS:
                    raise GiveUp(f"the instruction {instr.op} is not known") from None
                raise
            if witness is not None and witness.latest:
                self.refuse_entered()
            if len(frames) == base:
                return self.returned
            if self.steps > self.max_steps:
                raise GiveUp(f"more than {self.max_steps} instructions in one frame", "raise config.max_trace_steps")

    def refuse_entered(self) -> None:
        """Capture again with a break before what has had C code run the program's own: nobody knows what that read."""
        if self.witness is not None and self.witness.latest:
            raise Restart(self.break_step(), self.witness.latest, "call it in Python, or outside compiled code")

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
            stack.append(frame.instance)

    def unwind(self, error: BaseException, base: int, *, again: bool = False) -> None:
        """Find the handler of an exception, dropping frames down to ``base``."""
        if id(error) not in self.raised_at:
            self.raised_at[id(error)] = (error, self.break_step())
        while True:
            frame = self.frames[-1]
            if not again:
                self._note(error, frame)
            again = False
            handler = frame.info.handlers[frame.at]
            if handler is not None:
                del frame.stack[handler.depth :]
                if handler.lasti:
                    frame.stack.append(frame.at)
                frame.stack.append(error)
                frame.ip = handler.target
                return
            self.frames.pop()
            if len(self.frames) == base:
                raise UserRaised(error)

    def _note(self, error: BaseException, frame: Frame) -> None:
        """One more entry of the exception's traceback; not seen by the watch, which takes it for the program's."""
        if self.world.record_of(error) is not None:
            raise Restart(
                self.raised_at[id(error)][1], "an exception object from outside the compiled function is raised"
            )
        watched = self.watch is not None and self.watch.pause()
        code, at = origin(frame.info.code, frame.at)
        tracebacks.passes(error, code, decode(code).instrs[at].offset, frame.globals)
        if watched and self.watch is not None:
            self.watch.go_on()

    # ------------------------------------------------------------------ calling

    def call(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Call anything and wait for its value, from inside an instruction."""
        made = dispatch(self, fn, list(args), kwargs)
        return self.finish(made) if type(made) is Frame else made

    def construct(self, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """``type.__call__`` on a class, past its metaclass."""
        made = construct(self, cls, args, kwargs)
        return self.finish(made) if type(made) is Frame else made

    def finish(self, frame: Frame) -> Any:
        """Run a frame to its end inside the current instruction. A break in it breaks before the instruction."""
        frame.after = After.PUSH if frame.after is not After.INSTANCE else After.INSTANCE
        self.nesting.append(len(self.frames) - 1)
        handling = self.handling
        depth = len(self.frames)
        self.push_frame(frame)
        watched = self.watch is not None and self.watch.pause()
        try:
            value = self.run()
        except UserRaised:
            self.handling = handling
            raise
        finally:
            if watched and self.watch is not None:
                self.watch.go_on()
            if len(self.frames) <= depth:
                self.nesting.pop()
        return frame.instance if frame.after is After.INSTANCE else value

    def native(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Run C code on interpreter values; what it raises is the user's exception."""
        if id(fn) in PROTOCOLS and any(type(value) in STAND_INS for value in args):
            for name in PROTOCOLS[id(fn)]:
                self.world.guard_method(name)
        try:
            return fn(*args, **kwargs) if self.watch is None else self.watch.call(fn, args, kwargs)
        except (torch_private.DataDependentOutputException, torch_private.GuardOnDataDependentSymNode):
            raise Break(
                f"{getattr(fn, '__name__', fn)} needs the value of a tensor",
                "keep the value as a tensor, or move this line out of the compiled function",
            ) from None
        except RecursionError:
            raise Break("recursion too deep") from None
        except Exception as error:
            if type(error) in (TypeError, AttributeError) and STAND_IN_CLASS.search(str(error)):
                raise Break(f"{getattr(fn, '__name__', fn)} of a tensor, or of a number that changes, raises") from None
            raise UserRaised(error) from None
        except BaseException as error:
            if id(error) in self.raised_at:  # by the program, such as a SystemExit, and not by capture itself
                raise UserRaised(error) from None
            raise

    def hooked(self, name: str, what: str) -> None:
        """Guard the builtin that Python calls by itself for ``what``; a break where the program has put in its own."""
        found = getattr(builtins, name)
        if type(found) is not types.BuiltinFunctionType:
            raise Break(f"{what}, with a {name} of the program's own")
        self.world.guard_path(f"builtins.{name}", found)

    def raise_user(self, error: BaseException) -> None:
        """Raise a new exception in the user's program."""
        raise UserRaised(error)

    def ask_outside(self) -> None:
        """Captured code depends on what its caller handles: guarded to be nothing, a break where there is something."""
        if self.outside is not None:
            raise Break("the exception is read that the caller of compiled code handles")
        self.asks_outside = True

    def truth(self, value: Any) -> bool:
        """bool(value), as an ``if`` takes it."""
        return truth(self, value)

    def set_handling(self, error: BaseException | None) -> ExcInfo:
        """Make this the exception being handled; the marker restores the one before."""
        marker = ExcInfo(error, self.handling)
        self.handling = error
        return marker
