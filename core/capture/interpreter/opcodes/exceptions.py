"""raise, except, finally, assert."""

from __future__ import annotations

from typing import Any

from jitney.capture.interpreter import exception_context
from jitney.capture.interpreter.frame import ExcInfo, Frame
from jitney.capture.interpreter.opcodes.table import OpcodeTable
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.python.containers import iterable
from jitney.capture.python.operators import unary

op = OpcodeTable()

CAUSE: Any = vars(BaseException)["__cause__"]  # past special methods of the program's class


@op("LOAD_ASSERTION_ERROR")
def load_assertion_error(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(AssertionError)


def as_exception(vm: Any, value: Any, what: str = "exceptions") -> BaseException:
    """The instance that ``raise value`` raises."""
    if isinstance(value, type) and issubclass(value, BaseException):
        made = vm.call(value)
        if not isinstance(made, BaseException):
            text = f"calling {value!r} should have returned an instance of BaseException, not {type(made)!r}"
            return vm.raise_user(TypeError(text))
        return made
    if isinstance(value, BaseException):
        return value
    return vm.raise_user(TypeError(f"{what} must derive from BaseException"))


@op("RAISE_VARARGS")
def raise_varargs(vm: Any, frame: Frame, instr: Any) -> None:
    if instr.arg == 0:
        if vm.handling is None:
            vm.ask_outside()
            vm.raise_user(RuntimeError("No active exception to reraise"))
        raise UserRaised(vm.handling, again=True)
    if instr.arg == 2:
        value, cause = frame.pop_many(2)
        error = _own(vm, as_exception(vm, value))
        CAUSE.__set__(error, None if cause is None else as_exception(vm, cause, "exception causes"))
    else:
        error = _own(vm, as_exception(vm, frame.stack.pop()))
    exception_context.raised(error, vm.handling)
    raise UserRaised(error)


def _own(vm: Any, error: BaseException) -> BaseException:
    if vm.world.record_of(error) is not None:
        raise Break("an exception object from outside the compiled function is raised")
    return error


@op("RERAISE")
def reraise(vm: Any, frame: Frame, instr: Any) -> None:
    raise UserRaised(frame.stack.pop(), again=True)


@op("PUSH_EXC_INFO")
def push_exc_info(vm: Any, frame: Frame, instr: Any) -> None:
    error = frame.stack.pop()
    frame.stack += (vm.set_handling(error), error)


@op("POP_EXCEPT")
def pop_except(vm: Any, frame: Frame, instr: Any) -> None:
    marker = frame.stack.pop()
    vm.handling = marker.previous if isinstance(marker, ExcInfo) else None


@op("CHECK_EXC_MATCH")
def check_exc_match(vm: Any, frame: Frame, instr: Any) -> None:
    kinds = frame.stack.pop()
    if not _all_exceptions(kinds):
        text = "catching classes that do not inherit from BaseException is not allowed"
        vm.raise_user(TypeError(text))
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)  # a subclass in C, whatever the class says of instances
    vm.world.guard_bases(type(frame.stack[-1]))
    frame.stack.append(any(kind is cls for kind in wanted for cls in type(frame.stack[-1]).__mro__))


def _all_exceptions(kinds: Any) -> bool:
    found = kinds if isinstance(kinds, tuple) else (kinds,)
    return all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in found)


@op("CALL_INTRINSIC_1")
def call_intrinsic_1(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    if instr.arg == 3:  # INTRINSIC_STOPITERATION_ERROR
        if isinstance(value, StopIteration):
            failure = RuntimeError("generator raised StopIteration")
            failure.__cause__ = failure.__context__ = value
            value = failure
        frame.stack.append(value)
    elif instr.arg == 5:  # INTRINSIC_UNARY_POSITIVE
        frame.stack.append(unary(vm, "+", value))
    elif instr.arg == 6:  # INTRINSIC_LIST_TO_TUPLE
        frame.stack.append(tuple(iterable(vm, value)))
    else:
        raise Break("an instruction about types or imports (CALL_INTRINSIC_1)")


@op("CALL_INTRINSIC_2")
def call_intrinsic_2(vm: Any, frame: Frame, instr: Any) -> None:
    if instr.arg != 1:  # INTRINSIC_PREP_RERAISE_STAR
        raise Break("an instruction about types (CALL_INTRINSIC_2)")
    prep_reraise_star(vm, frame, instr)


# ------------------------------------------------------------------ except*


@op("CHECK_EG_MATCH")
def check_eg_match(vm: Any, frame: Frame, instr: Any) -> None:
    error, kinds = frame.pop_many(2)
    found = kinds if isinstance(kinds, tuple) else (kinds,)
    if not _all_exceptions(kinds) or any(issubclass(kind, BaseExceptionGroup) for kind in found):
        raise Break("except* with classes that it does not take")
    match, rest = None, error
    if isinstance(error, BaseExceptionGroup):
        if _leaves(vm, error) is not None and isinstance(error, found):
            match, rest = error, None
        else:
            match, rest = vm.native(error.split, kinds)
    elif error is not None and any(kind in type(error).__mro__ for kind in found):
        vm.world.guard_bases(type(error))
        match, rest = vm.native(BaseExceptionGroup, "", [error]), None
    frame.stack += (rest, match)
    for group in (match, rest):
        if group is not error and group is not None:
            _mark(vm, group)
    if match is not None:  # it is what is handled now
        at = max(i for i, value in enumerate(frame.stack) if isinstance(value, ExcInfo))
        frame.stack[at] = ExcInfo(match, frame.stack[at].previous)
        vm.handling = match


@op("PREP_RERAISE_STAR")
def prep_reraise_star(vm: Any, frame: Frame, instr: Any) -> None:
    """What is left to be raised: what handlers have raised, and the parts of the group that none has taken."""
    group, errors = frame.pop_many(2)
    errors = [error for error in errors if error is not None]
    if not isinstance(group, BaseExceptionGroup):
        frame.stack.append(errors[0] if errors else None)
        return
    kept = [error for error in errors if _same_metadata(error, group)]
    raised = [error for error in errors if not any(error is one for one in kept)]
    ids = {id(leaf) for error in kept for leaf in _leaves(vm, error)}
    again = vm.native(group.subgroup, lambda part: id(part) in ids) if ids else None
    if again is not None:
        _mark(vm, again)
        raised.append(again)
    if len(raised) > 1:
        raised = [_mark(vm, vm.native(BaseExceptionGroup, "", raised))]
    frame.stack.append(raised[0] if raised else None)


def _leaves(vm: Any, error: BaseException) -> list[BaseException]:
    """The exceptions that are no groups; a break at one from outside, or at a group of a class of the program's."""
    if vm.world.record_of(error) is not None:
        raise Break("except* on an exception object from outside the compiled function")
    if not isinstance(error, BaseExceptionGroup):
        vm.world.guard_bases(type(error))
        return [error]
    if type(error) not in (ExceptionGroup, BaseExceptionGroup):
        raise Break(f"except* on a {type(error).__qualname__}")
    return [leaf for part in error.exceptions for leaf in _leaves(vm, part)]


def _same_metadata(error: BaseException, group: BaseException) -> bool:
    """Is it a part of the group, raised again, rather than another exception?"""
    names = ("__notes__", "__traceback__", "__cause__", "__context__")
    return all(getattr(error, name, None) is getattr(group, name, None) for name in names)


def _mark(vm: Any, group: BaseException) -> BaseException:
    """Register the groups that C code has made."""
    for part in (group, *(group.exceptions if isinstance(group, BaseExceptionGroup) else ())):
        if isinstance(part, BaseExceptionGroup) and not vm.world.is_fresh(part) and vm.world.record_of(part) is None:
            vm.world.mark_fresh(part)
    return group
