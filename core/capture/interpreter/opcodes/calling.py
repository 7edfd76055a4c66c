"""Calls, and making functions and classes."""

from __future__ import annotations

import builtins
import types
from typing import Any

from jitney.capture.interpreter.code import PY313
from jitney.capture.interpreter.frame import NULL, Frame
from jitney.capture.interpreter.opcodes.table import OpcodeTable
from jitney.capture.interpreter.signals import Break
from jitney.capture.python.calls import dispatch
from jitney.capture.python.containers import iterable
from jitney.capture.python.natives import mapping_items

op = OpcodeTable()


def invoke(vm: Any, frame: Frame, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Call; the value is pushed, now or when the callee's frame returns."""
    made = dispatch(vm, fn, args, kwargs)
    if type(made) is Frame:
        vm.push_frame(made)
    else:
        frame.stack.append(made)


def callee(first: Any, second: Any, args: list[Any]) -> tuple[Any, list[Any]]:
    """Function and arguments from the two slots below the arguments."""
    if PY313:
        return first, (args if second is NULL else [second, *args])
    return (second, args) if first is NULL else (first, [second, *args])


@op("KW_NAMES")
def kw_names(vm: Any, frame: Frame, instr: Any) -> None:
    frame.kwnames = instr.argval if isinstance(instr.argval, tuple) else frame.info.code.co_consts[instr.arg]


@op("CALL", "CALL_KW")
def call(vm: Any, frame: Frame, instr: Any) -> None:
    names, frame.kwnames = frame.kwnames, ()
    if instr.op == "CALL_KW":
        names = frame.stack.pop()
    values = frame.pop_many(instr.arg)
    first, second = frame.pop_many(2)
    split = len(values) - len(names)
    fn, args = callee(first, second, values[:split])
    invoke(vm, frame, fn, args, dict(zip(names, values[split:], strict=True)))


@op("CALL_FUNCTION_EX")
def call_function_ex(vm: Any, frame: Frame, instr: Any) -> None:
    kwargs = dict(mapping_items(vm, frame.stack.pop())) if instr.arg & 1 else {}
    if not all(isinstance(name, str) for name in kwargs):
        raise Break("a call has keywords that are no text")
    given = frame.stack.pop()
    if not (hasattr(type(given), "__iter__") or hasattr(type(given), "__getitem__")):
        raise Break("the argument after * of a call is not iterable")
    args = vm.native(list, iterable(vm, given))
    if PY313:
        frame.stack.pop()
        fn = frame.stack.pop()
    else:
        fn = frame.stack.pop()
        frame.stack.pop()
    invoke(vm, frame, fn, args, kwargs)


@op("LOAD_BUILD_CLASS")
def load_build_class(vm: Any, frame: Frame, instr: Any) -> None:
    vm.hooked("__build_class__", "a class statement")
    frame.stack.append(builtins.__build_class__)


@op("MAKE_FUNCTION")
def make_function(vm: Any, frame: Frame, instr: Any) -> None:
    code = frame.stack.pop()
    closure = frame.stack.pop() if instr.arg & 8 else None
    annotations = frame.stack.pop() if instr.arg & 4 else None
    kwdefaults = frame.stack.pop() if instr.arg & 2 else None
    defaults = frame.stack.pop() if instr.arg & 1 else None
    if PY313:
        closure = tuple(types.CellType() for _ in code.co_freevars) or None
    made = types.FunctionType(code, frame.globals, code.co_name, defaults, closure)
    made.__kwdefaults__ = kwdefaults
    if annotations is not None:
        _set_annotations(made, annotations)
    frame.stack.append(vm.world.mark_fresh(made))


@op("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(vm: Any, frame: Frame, instr: Any) -> None:
    made = frame.stack.pop()
    value = frame.stack.pop()
    if instr.arg == 8:
        code = made.__code__
        replaced = types.FunctionType(code, made.__globals__, code.co_name, made.__defaults__, value)
        replaced.__kwdefaults__ = made.__kwdefaults__
        replaced.__annotations__ = made.__annotations__
        made = vm.world.mark_fresh(replaced)
    elif instr.arg == 4:
        _set_annotations(made, value)
    elif instr.arg == 2:
        made.__kwdefaults__ = value
    else:
        made.__defaults__ = value
    frame.stack.append(made)


def _set_annotations(made: types.FunctionType, value: Any) -> None:
    if isinstance(value, tuple):
        value = dict(zip(value[::2], value[1::2], strict=True))
    made.__annotations__ = value
