"""Jumps, loops, the stack itself, generators and ``with``."""

from __future__ import annotations

from typing import Any

from jitney.capture.interpreter.code import PY312, PY313
from jitney.capture.interpreter.frame import NULL, Frame
from jitney.capture.interpreter.generators import InterpretedGenerator
from jitney.capture.interpreter.opcodes.table import OpcodeTable
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.python import attributes, containers
from jitney.capture.python.classes import lookup
from jitney.capture.torch.conversions import settled
from jitney.capture.world.record import ABSENT

op = OpcodeTable()


@op("POP_TOP", "END_FOR")
def pop_top(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.pop()


@op("PUSH_NULL")
def push_null(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(NULL)


@op("COPY")
def copy(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(frame.stack[-instr.arg])


@op("SWAP")
def swap(vm: Any, frame: Frame, instr: Any) -> None:
    stack = frame.stack
    stack[-1], stack[-instr.arg] = stack[-instr.arg], stack[-1]


@op("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(vm: Any, frame: Frame, instr: Any) -> None:
    frame.ip = instr.target


@op("POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE")
def pop_jump_if_true(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    if value if type(value) is bool else settled(vm, frame, instr, value, True):
        frame.ip = instr.target


@op("POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE")
def pop_jump_if_false(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    if not (value if type(value) is bool else settled(vm, frame, instr, value, False)):
        frame.ip = instr.target


@op("POP_JUMP_IF_NONE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE")
def pop_jump_if_none(vm: Any, frame: Frame, instr: Any) -> None:
    if frame.stack.pop() is None:
        frame.ip = instr.target


@op("POP_JUMP_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE")
def pop_jump_if_not_none(vm: Any, frame: Frame, instr: Any) -> None:
    if frame.stack.pop() is not None:
        frame.ip = instr.target


@op("JUMP_IF_TRUE_OR_POP")
def jump_if_true_or_pop(vm: Any, frame: Frame, instr: Any) -> None:
    if vm.truth(frame.stack[-1]):
        frame.ip = instr.target
    else:
        frame.stack.pop()


@op("JUMP_IF_FALSE_OR_POP")
def jump_if_false_or_pop(vm: Any, frame: Frame, instr: Any) -> None:
    if not vm.truth(frame.stack[-1]):
        frame.ip = instr.target
    else:
        frame.stack.pop()


@op("RETURN_VALUE")
def return_value(vm: Any, frame: Frame, instr: Any) -> None:
    vm.leave(frame.stack.pop())


@op("RETURN_CONST")
def return_const(vm: Any, frame: Frame, instr: Any) -> None:
    vm.leave(instr.argval)


# ------------------------------------------------------------------ loops


@op("GET_ITER")
def get_iter(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(containers.get_iter(vm, frame.stack.pop()))


AFTER_LOOP = 2 if PY313 else 1 if PY312 else 0


@op("FOR_ITER")
def for_iter(vm: Any, frame: Frame, instr: Any) -> None:
    try:
        value = containers.next_value(vm, frame.stack[-1])
    except UserRaised as raised:
        if not isinstance(raised.value, StopIteration):
            raise
        frame.stack.pop()
        frame.ip = instr.target + AFTER_LOOP
        return
    frame.stack.append(value)


# ------------------------------------------------------------------ generators


@op("RETURN_GENERATOR")
def return_generator(vm: Any, frame: Frame, instr: Any) -> None:
    vm.leave(InterpretedGenerator(vm, frame))


@op("YIELD_VALUE")
def yield_value(vm: Any, frame: Frame, instr: Any) -> None:
    generator = frame.generator
    if generator is None:
        raise Break("yield outside a captured generator")
    generator.state = "suspended"
    vm.returned = frame.stack.pop()
    vm.frames.pop()


@op("GET_YIELD_FROM_ITER")
def get_yield_from_iter(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack[-1]
    if type(value) is not InterpretedGenerator:
        frame.stack[-1] = containers.get_iter(vm, value)


@op("SEND")
def send(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    receiver = frame.stack[-1]
    try:
        if value is None:
            result = containers.next_value(vm, receiver)
        else:
            result = vm.call(attributes.load_attr(vm, receiver, "send"), value)
    except UserRaised as raised:
        if not isinstance(raised.value, StopIteration):
            raise
        if not PY312:
            frame.stack.pop()
        frame.stack.append(raised.value.value)
        frame.ip = instr.target
        return
    frame.stack.append(result)


@op("END_SEND")
def end_send(vm: Any, frame: Frame, instr: Any) -> None:
    del frame.stack[-2]


@op("CLEANUP_THROW")
def cleanup_throw(vm: Any, frame: Frame, instr: Any) -> None:
    _receiver, _last, error = frame.pop_many(3)
    if not isinstance(error, StopIteration):
        raise UserRaised(error, again=True)
    frame.stack += (None, error.value)


# ------------------------------------------------------------------ with


@op("BEFORE_WITH")
def before_with(vm: Any, frame: Frame, instr: Any) -> None:
    manager = frame.stack.pop()
    methods = []
    for name in ("__enter__", "__exit__"):
        entry = lookup(vm, type(manager), name)
        if entry is ABSENT:
            kind = type(manager).__name__
            more = "" if name == "__enter__" else " (missed __exit__ method)"
            text = f"{kind!r} object does not support the context manager protocol{more}"
            vm.raise_user(TypeError(text))
        methods.append(attributes.bind(vm, entry, manager, type(manager), name))
    enter, leave = methods
    value = vm.call(enter)
    frame.stack += (leave, value)


@op("WITH_EXCEPT_START")
def with_except_start(vm: Any, frame: Frame, instr: Any) -> None:
    error = frame.stack[-1]
    leave = frame.stack[-4]
    value = vm.call(leave, type(error), error, error.__traceback__)
    frame.stack.append(value)
