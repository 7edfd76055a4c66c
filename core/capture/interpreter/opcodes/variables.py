"""Names: fast locals, cells, globals, class namespaces, constants, attributes."""

from __future__ import annotations

import builtins
import types
from typing import Any

from jitney._util.ownership import trusted
from jitney.capture.interpreter.code import PY313
from jitney.capture.interpreter.frame import NULL, Frame
from jitney.capture.interpreter.opcodes.table import OpcodeTable
from jitney.capture.interpreter.signals import Break, GiveUp, UserRaised
from jitney.capture.original_functions import genuine_builtin
from jitney.capture.python import attributes
from jitney.capture.python.builtins import import_name, make_super
from jitney.capture.world.cells import cell_get, cell_set
from jitney.capture.world.record import ABSENT

op = OpcodeTable()


@op("NOP", "RESUME", "CACHE", "PRECALL", "EXTENDED_ARG", "COPY_FREE_VARS", "NOT_TAKEN")
def nothing(vm: Any, frame: Frame, instr: Any) -> None:
    pass


@op("LOAD_CONST")
def load_const(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(instr.argval)


def read_fast(vm: Any, frame: Frame, name: str) -> Any:
    value = frame.locals.get(name, NULL)
    if value is NULL:
        if name in frame.cells:
            return frame.cells[name]
        text = f"cannot access local variable '{name}' where it is not associated with a value"
        vm.raise_user(UnboundLocalError(text))
    return value


def write_fast(frame: Frame, name: str, value: Any) -> None:
    if type(value) is types.CellType and name in frame.info.cellvars:
        frame.cells[name] = value
    else:
        frame.locals[name] = value


@op("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CLOSURE")
def load_fast(vm: Any, frame: Frame, instr: Any) -> None:
    name = instr.argval
    if instr.op == "LOAD_CLOSURE":
        frame.stack.append(frame.cells[name])
    else:
        frame.stack.append(read_fast(vm, frame, name))


@op("LOAD_FAST_LOAD_FAST")
def load_fast_load_fast(vm: Any, frame: Frame, instr: Any) -> None:
    for name in instr.argval:
        frame.stack.append(read_fast(vm, frame, name))


@op("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(vm: Any, frame: Frame, instr: Any) -> None:
    name = instr.argval
    if name in frame.cells and name in frame.info.cellvars:
        frame.stack.append(frame.cells.pop(name))
    else:
        frame.stack.append(frame.locals.pop(name, NULL))


@op("STORE_FAST", "STORE_FAST_MAYBE_NULL")
def store_fast(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    if value is NULL:
        frame.locals.pop(instr.argval, None)
        frame.cells.pop(instr.argval, None)
    else:
        write_fast(frame, instr.argval, value)


@op("STORE_FAST_STORE_FAST")
def store_fast_store_fast(vm: Any, frame: Frame, instr: Any) -> None:
    for name in instr.argval:
        write_fast(frame, name, frame.stack.pop())


@op("STORE_FAST_LOAD_FAST")
def store_fast_load_fast(vm: Any, frame: Frame, instr: Any) -> None:
    store, load = instr.argval
    write_fast(frame, store, frame.stack.pop())
    frame.stack.append(read_fast(vm, frame, load))


@op("DELETE_FAST")
def delete_fast(vm: Any, frame: Frame, instr: Any) -> None:
    read_fast(vm, frame, instr.argval)
    del frame.locals[instr.argval]


# ------------------------------------------------------------------ cells


@op("MAKE_CELL")
def make_cell(vm: Any, frame: Frame, instr: Any) -> None:
    name = instr.argval
    cell = vm.world.mark_fresh(types.CellType())
    if name in frame.locals:
        cell.cell_contents = frame.locals.pop(name)
    frame.cells[name] = cell
    vm.cell_owners[id(cell)] = frame.info.code


@op("LOAD_DEREF")
def load_deref(vm: Any, frame: Frame, instr: Any) -> None:
    name = instr.argval
    cell = frame.cells[name]
    try:
        frame.stack.append(cell_get(vm, cell, name))
    except UserRaised as raised:
        if name in frame.info.cellvars and isinstance(raised.value, NameError):
            text = f"cannot access local variable '{name}' where it is not associated with a value"
            vm.raise_user(UnboundLocalError(text))
        raise


@op("STORE_DEREF")
def store_deref(vm: Any, frame: Frame, instr: Any) -> None:
    cell_set(vm, frame.cells[instr.argval], frame.stack.pop())


@op("DELETE_DEREF")
def delete_deref(vm: Any, frame: Frame, instr: Any) -> None:
    cell_get(vm, frame.cells[instr.argval], instr.argval)
    cell_set(vm, frame.cells[instr.argval], NULL)


@op("LOAD_CLASSDEREF")
def load_classderef(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.namespace.get(instr.argval, ABSENT)
    frame.stack.append(cell_get(vm, frame.cells[instr.argval], instr.argval) if value is ABSENT else value)


@op("LOAD_FROM_DICT_OR_DEREF")
def load_from_dict_or_deref(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop().get(instr.argval, ABSENT)
    frame.stack.append(cell_get(vm, frame.cells[instr.argval], instr.argval) if value is ABSENT else value)


# ------------------------------------------------------------------ globals and names


def load_global(vm: Any, frame: Frame, name: str) -> Any:
    """A global or builtin, guarded."""
    world = vm.world
    namespace = frame.globals
    record = world.anchor(namespace)
    if name in record.overlay or record.content is not None:
        value = world.dict_get(record, name)
        if value is not ABSENT:
            return value
    elif name in namespace:
        value = namespace[name]
        if trusted(namespace) and isinstance(
            value, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
        ):
            return world.take(namespace, name, value)
        return world.wrap(value, record.source.item(name))
    own = namespace.get("__builtins__", builtins)
    if own is not builtins and own is not vars(builtins):
        raise GiveUp(f"the namespace of {frame.info.code.co_qualname} has builtins of its own")
    found = getattr(builtins, name, ABSENT)
    if found is ABSENT:
        world.guard(record.source, "lacks", name)
        vm.raise_user(NameError(f"name '{name}' is not defined", name=name))
    if trusted(namespace):
        world.assumptions.lack(namespace, name)
    else:
        world.guard_disjoint(record.source, name)
    if found is not genuine_builtin(name):
        return world.wrap(found, world.const(builtins).attr(name))
    world.guard_path(f"builtins.{name}", found)
    return found


@op("LOAD_GLOBAL")
def op_load_global(vm: Any, frame: Frame, instr: Any) -> None:
    value = load_global(vm, frame, instr.argval)
    push_callable(frame, value, bool(instr.arg & 1))


def push_callable(frame: Frame, value: Any, with_null: bool) -> None:
    if not with_null:
        frame.stack.append(value)
    elif PY313:
        frame.stack += (value, NULL)
    else:
        frame.stack += (NULL, value)


@op("STORE_GLOBAL")
def store_global(vm: Any, frame: Frame, instr: Any) -> None:
    record = vm.world.anchor(frame.globals)
    vm.world.dict_set(record, instr.argval, frame.stack.pop())


@op("DELETE_GLOBAL")
def delete_global(vm: Any, frame: Frame, instr: Any) -> None:
    raise Break("a global variable is deleted")


@op("LOAD_NAME")
def load_name(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.namespace.get(instr.argval, ABSENT) if frame.namespace is not None else ABSENT
    frame.stack.append(load_global(vm, frame, instr.argval) if value is ABSENT else value)


@op("LOAD_LOCALS")
def load_locals(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(frame.namespace)


@op("LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict_or_globals(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop().get(instr.argval, ABSENT)
    frame.stack.append(load_global(vm, frame, instr.argval) if value is ABSENT else value)


@op("STORE_NAME")
def store_name(vm: Any, frame: Frame, instr: Any) -> None:
    frame.namespace[instr.argval] = frame.stack.pop()


@op("DELETE_NAME")
def delete_name(vm: Any, frame: Frame, instr: Any) -> None:
    if instr.argval not in frame.namespace:
        vm.raise_user(NameError(f"name '{instr.argval}' is not defined"))
    del frame.namespace[instr.argval]


@op("SETUP_ANNOTATIONS")
def setup_annotations(vm: Any, frame: Frame, instr: Any) -> None:
    frame.namespace.setdefault("__annotations__", {})


# ------------------------------------------------------------------ attributes and imports


@op("LOAD_ATTR")
def load_attr(vm: Any, frame: Frame, instr: Any) -> None:
    value = attributes.load_attr(vm, frame.stack.pop(), instr.argval)
    push_callable(frame, value, instr.is_method)


@op("LOAD_METHOD")
def load_method(vm: Any, frame: Frame, instr: Any) -> None:
    push_callable(frame, attributes.load_attr(vm, frame.stack.pop(), instr.argval), True)


@op("STORE_ATTR")
def store_attr(vm: Any, frame: Frame, instr: Any) -> None:
    obj = frame.stack.pop()
    attributes.store_attr(vm, obj, instr.argval, frame.stack.pop())


@op("DELETE_ATTR")
def delete_attr(vm: Any, frame: Frame, instr: Any) -> None:
    attributes.delete_attr(vm, frame.stack.pop(), instr.argval)


@op("LOAD_SUPER_ATTR")
def load_super_attr(vm: Any, frame: Frame, instr: Any) -> None:
    called, cls, obj = frame.pop_many(3)
    made = make_super(vm, cls, obj) if called is super else vm.call(called, cls, obj)
    push_callable(frame, attributes.load_attr(vm, made, instr.argval), bool(instr.arg & 1))


@op("IMPORT_NAME")
def op_import_name(vm: Any, frame: Frame, instr: Any) -> None:
    level, fromlist = frame.pop_many(2)
    frame.stack.append(import_name(vm, instr.argval, fromlist, level))


@op("IMPORT_FROM")
def import_from(vm: Any, frame: Frame, instr: Any) -> None:
    try:
        value = attributes.load_attr(vm, frame.stack[-1], instr.argval)
    except UserRaised:
        raise Break(f"import of the name {instr.argval}") from None
    frame.stack.append(value)
