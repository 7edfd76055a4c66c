"""The interpreter: runs bytecode over real Python values and stand-in tensors, frame by frame.

Handlers live in ``opcodes`` (one short function per opcode); what they need of Python's semantics lives in
``capture/python``; what they know of the interpreter is ``interpreter.py``. This is the loop, exceptions and nesting.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from jitney._util import interrupts
from jitney._util.caller_frame import call_here, calls_from
from jitney.capture.interpreter import exception_context, tracebacks
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.frame import After, Frame
from jitney.capture.interpreter.interpreter import Interpreter
from jitney.capture.interpreter.opcodes import HANDLERS
from jitney.capture.interpreter.resume import origin
from jitney.capture.interpreter.signals import Break, GiveUp, Restart, UserRaised
from jitney.capture.numpy.adopt import adopt
from jitney.capture.python.calls import construct, dispatch
from jitney.capture.python.containers import settle_among
from jitney.capture.python.operators import truth
from jitney.capture.python.type_slots import name_in_c
from jitney.capture.tables import Handlers
from jitney.capture.torch.classes import torch_function
from jitney.capture.torch.optimizers import in_optimizer
from jitney.capture.torch.sequences import generators
from jitney.capture.torch.stand_in_attributes import python_type
from jitney.capture.torch.symbols import Symbols
from jitney.capture.torch.tensors import Tracer
from jitney.capture.waiting_generators import KEEPING, WaitingGenerators
from jitney.capture.world.host_comparisons import host_number
from jitney.capture.world.world import World
from jitney.capture.world.wrap_value import wrapper
from jitney.guards import Source, reentry
from jitney.torch_compat import torch_private


class Loop(Interpreter):
    """The interpreter at work.

    Args:
        handlers: of functions and arrays.
        dynamic_dims: which sizes of a tensor are symbolic.
        is_dynamic: is the number at this source another one from call to call?
        steady: does what is at this source stay as it is from call to call?
        forced: the steps before which capture is to break, from earlier attempts.
        max_steps: how many instructions may be interpreted.
        outside: what the caller of compiled code is handling.
        has_regions: does the backend compute checkpointed regions again?
        whole: is a graph break an error?
        foresees: may branches on tensors of the host be guarded?
        data_sizes: may sizes that depend on data be symbols, though nobody has asked for it?
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        dynamic_dims: Callable[[Any, Source], list[bool]],
        is_dynamic: Callable[[Source, Any], bool],
        steady: Callable[[Source, Any], bool],
        forced: dict[int, Restart],
        max_steps: int,
        outside: BaseException | None,
        has_regions: bool,
        whole: bool,
        foresees: bool = True,
        data_sizes: bool = False,
    ) -> None:
        symbols, witness = Symbols(dynamic_dims, whole, data_sizes), reentry.current_watch()
        if witness is not None:
            witness.latest = ""
            witness.settled.clear()
        world = World(
            lambda guards: Tracer(
                symbols,
                guards,
                self.operation_stack,
                self.reads_numbers,
                has_regions,
                witness,
                self.caller,
                self.break_step,
                functools.partial(torch_function.call, self),
                functools.partial(generators.draw, self),
                functools.partial(host_number, self),
            ),
            wrapper,
            adopt_array=lambda value, source: adopt(self, value, source),
            is_dynamic=is_dynamic,
            steady=steady,
            origin=self.user_line,
            watch=reentry.needed_watch(),
            settle=lambda key, others: settle_among(self, key, others),
        )
        super().__init__(world, handlers, outside, has_regions, witness)
        self.waiting_generators = WaitingGenerators(self)
        self.forced = forced
        self.max_steps = max_steps
        self.foresees = foresees

    def reads_numbers(self) -> bool:
        """May the running frame's ``Tensor.item()`` stay in the graph?"""
        return self.symbols.reads_numbers or in_optimizer(self)

    def caller(self) -> Callable[..., Any]:
        """What calls an operation (``func, args, kwargs``) from the line that the topmost frame is at."""
        if not self.frames:
            return call_here
        frame = self.frames[-1]
        try:
            code, at = origin(frame.info.code, frame.at)
        except KeyError:  # what a resume function begins with is no line of the program's
            return call_here
        return calls_from(code.co_filename, decode(code).instrs[at].line or code.co_firstlineno, frame.globals)

    # ------------------------------------------------------------------ the loop

    def run(self) -> Any:
        """Interpret the topmost frame until it returns; its value. Raises ``UserRaised`` if it raises."""
        frames = self.frames
        base = len(frames) - 1
        forced = self.forced
        seen, witness = self.watch, self.witness
        waiting, opcode = self.waiting, ""
        while True:
            frame = frames[-1]
            if waiting and opcode not in KEEPING:
                frame.saved = []
                self.waiting_generators.check(opcode)
            if self.pending is not None:
                raise self.pending
            if interrupts.waiting:
                interrupts.postponement.deliver()
            at = frame.at = frame.ip
            instr = frame.instrs[at]
            opcode = instr.op
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
                opcode = ""  # the handler's frame has lost what lay above
                self.refuse_entered()
                error = raised.value
                if not (raised.again or id(error) in self.raised_at or self.world.record_of(error) is not None):
                    exception_context.raised_by_c(error, self.handling, self.outside)
                self.unwind(error, base, again=raised.again)
            except torch_private.GuardOnDataDependentSymNode:  # asked by capture itself, such as of two sizes
                raise Restart(self.break_step(), "a size that depends on data decides what happens") from None
            except KeyError:
                if instr.op not in HANDLERS:
                    raise GiveUp(f"the instruction {instr.op} is not known") from None
                raise
            if witness is not None and witness.latest:
                self.refuse_entered()
            if len(frames) == base:
                value, self.returned = self.returned, None
                return value
            if self.steps > self.max_steps:
                raise GiveUp(f"more than {self.max_steps} instructions in one frame", "raise config.max_trace_steps")

    def refuse_entered(self) -> None:
        """Capture again with a break before what has had C code run the program's own: nobody knows what that read."""
        if self.witness is not None and self.witness.latest:
            raise Restart(self.break_step(), self.witness.latest, "call it in Python, or outside compiled code")

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
            if self.waiting and not isinstance(error, GeneratorExit):
                self.waiting_generators.unwind(frame)
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

    def call(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call anything and wait for its value, from inside an instruction."""
        result = dispatch(self, fn, list(args), kwargs)
        return self.finish(result) if type(result) is Frame else result

    def construct(self, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """``type.__call__`` on a class, past its metaclass."""
        result = construct(self, cls, args, kwargs)
        return self.finish(result) if type(result) is Frame else result

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
        return self.instance(frame.instance, value) if frame.after is After.INSTANCE else value

    def instance(self, made: Any, value: Any) -> Any:
        """What a call of a class gives whose ``__init__`` has returned ``value``."""
        if value is not None:
            text = f"__init__() should return None, not '{name_in_c(python_type(self, value))}'"
            self.raise_user(TypeError(text))
        return made

    def truth(self, value: Any) -> bool:
        """bool(value), as an ``if`` takes it."""
        return truth(self, value)
