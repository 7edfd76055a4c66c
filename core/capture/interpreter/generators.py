"""Generators of the captured program: frames that wait, driven by the interpreter or by C code alike."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter import exception_context, tracebacks
from jitney.capture.interpreter.frame import ExcInfo
from jitney.capture.interpreter.signals import Break, GiveUp, Restart, UserRaised

if TYPE_CHECKING:
    from jitney.capture.interpreter.frame import Frame
    from jitney.capture.interpreter.interpreter import Interpreter


class InterpretedGenerator:
    """Stands for a generator object. ``state`` is created, suspended, running or finished."""

    def __init__(self, vm: Interpreter, frame: Frame) -> None:
        self.vm = vm
        self.frame = frame
        function, code = frame.func, frame.info.code
        names = (code.co_name, code.co_qualname) if function is None else (function.__name__, function.__qualname__)
        self.names = names
        self.state = "created"
        self.handling: BaseException | None = None

    def __del__(self) -> None:
        """CPython closes a generator that is dropped; so does the captured program, at the same place."""
        vm = self.vm
        vm.waiting.pop(id(self), None)
        if self.state != "suspended" or vm.over or vm.pending is not None:
            return
        step = vm.break_step() if vm.frames else 0
        try:
            self.close()
        except BaseException as error:
            text = f"a generator is dropped and its cleanup cannot be captured: {error}"
            vm.pending = Restart(step, text) if step else GiveUp(text)

    def __iter__(self) -> InterpretedGenerator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Resume with a value; raises what the generator raises, ``StopIteration`` at its end."""
        if self.state == "finished":
            raise StopIteration
        if self.state == "running":
            raise ValueError("generator already executing")
        if self.state == "created" and value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        self.frame.stack.append(value)
        return self._resume(None)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        """Raise inside the generator, where it waits."""
        error = _normalise(kind, value)
        if self.vm.world.record_of(error) is not None:
            raise Break("an exception object from outside the compiled function is thrown into a generator")
        if traceback is not None:
            tracebacks.TRACEBACK.__set__(error, traceback)
        if self.state == "created":
            self.state = "finished"
            tracebacks.passes(error, self.frame.info.code, 0, self.frame.globals)
        if self.state == "finished":
            exception_context.hand_on(error)
        inner = self._delegate()
        if inner is not None and not isinstance(error, GeneratorExit):
            return self._throw_into(inner, error)
        if inner is not None:
            close = getattr(inner, "close", None)
            if close is not None:
                close()
        self.frame.stack.append(None)
        return self._resume(error)

    def close(self) -> None:
        """Raise ``GeneratorExit`` inside, and expect the generator to end."""
        if self.state in ("finished", "created"):
            self.state = "finished"
            return
        error = GeneratorExit()
        try:
            self.throw(error)
        except (GeneratorExit, StopIteration):
            self.vm.raised_at.pop(id(error), None)
            tracebacks.let_go(error)
            return
        raise RuntimeError("generator ignored GeneratorExit")

    def _delegate(self) -> Any:
        """The iterator of the ``yield from`` in which the generator waits, or None."""
        following = self.frame.instrs[self.frame.ip] if self.frame.ip < len(self.frame.instrs) else None
        if following is not None and following.op == "RESUME" and following.arg & 3 >= 2:
            return self.frame.stack[-1]
        return None

    def _throw_into(self, inner: Any, error: BaseException) -> Any:
        thrower = getattr(inner, "throw", None)
        if thrower is None:
            self.frame.stack.append(None)
            return self._resume(error)
        try:
            return thrower(error)
        except Exception as raised:  # a handler of ours would become the context of what comes next
            result = raised
        if not isinstance(result, StopIteration):
            self.frame.stack.append(None)
            return self._resume(result)
        send = self.frame.instrs[self.frame.at - 1]
        self.frame.stack.pop()
        self.frame.stack.append(result.value)
        self.frame.ip = send.target
        if self.frame.instrs[send.target].op == "END_SEND":
            self.frame.stack.insert(-1, inner)
        return self._resume(None)

    def _resume(self, error: BaseException | None) -> Any:
        vm, frame = self.vm, self.frame
        self.state = "running"
        vm.waiting.pop(id(self), None)
        vm.nesting.append(len(vm.frames) - 1)
        handling = vm.handling
        if self.handling is not None:
            vm.handling = self.handling
            outermost = next(value for value in frame.stack if type(value) is ExcInfo)
            outermost.previous = handling  # of the caller, who may be another one than before
        depth = len(vm.frames)
        frame.generator = self
        failure: BaseException | None = None
        value = None
        try:
            vm.push_frame(frame)
            if error is not None:
                exception_context.raised(error, self.handling)
                vm.unwind(error, depth)
            value = vm.run()
        except UserRaised as raised:
            self.state = "finished"
            failure = raised.value
            if isinstance(failure, StopIteration):
                failure = RuntimeError("generator raised StopIteration")
                failure.__cause__ = failure.__context__ = raised.value
        finally:
            frame.generator = None
            if len(vm.frames) <= depth:
                vm.nesting.pop()
                vm.handling, self.handling = handling, vm.handling if vm.handling is not handling else None
        if failure is not None:  # raised here, since a handler of ours would become its context
            self._let_go()
            exception_context.hand_on(failure)
        if self.state == "suspended":
            if frame.info.is_protected(frame.at):
                vm.waiting[id(self)] = (weakref.ref(self), None)
            return value
        self.state = "finished"
        self._let_go()
        if value is None:
            raise StopIteration
        raise StopIteration(value)

    def _let_go(self) -> None:
        """Drop what the frame held, as CPython does where a generator ends: generators among it close now."""
        self.frame.saved = []
        self.frame.locals = {}
        self.frame.stack.clear()


def _normalise(kind: Any, value: Any) -> BaseException:
    if isinstance(kind, BaseException):
        return kind
    if isinstance(value, BaseException):
        return value
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        name = type(kind).__name__
        raise TypeError(f"exceptions must be classes or instances deriving from BaseException, not {name}")
    return kind() if value is None else kind(value)


class Reentrant:
    """A Python function as C code gets it: calling it goes back into the interpreter."""

    __slots__ = ("fn", "vm")

    def __init__(self, vm: Interpreter, fn: Any) -> None:
        self.vm = vm
        self.fn = fn

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Interpret the function."""
        return _call_for_c(self.vm, self.fn, *args, **kwargs)


class ReentrantIterator:
    """An iterator written in Python as C code gets it."""

    __slots__ = ("next", "value", "vm")

    def __init__(self, vm: Interpreter, value: Any, step: Any) -> None:
        self.vm = vm
        self.value = value
        self.next = step

    def __iter__(self) -> ReentrantIterator:
        return self

    def __next__(self) -> Any:
        return _call_for_c(self.vm, self.next, self.value)


def _call_for_c(vm: Interpreter, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Interpret a function that C code calls; what it raises, C code gets."""
    try:
        return vm.call(fn, *args, **kwargs)
    except UserRaised as raised:
        error = raised.value
    except Break as stop:  # C code has begun: only before its call can the graph be broken
        raise Restart(vm.break_step(), stop.reason, stop.hint, vm.user_stack()) from None
    exception_context.hand_on(error)
