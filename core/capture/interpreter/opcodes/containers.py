"""Building, unpacking and indexing containers; operators; formatting."""

from __future__ import annotations

import dis
from typing import Any

from jitney.capture.interpreter.code import PY313
from jitney.capture.interpreter.frame import Frame
from jitney.capture.interpreter.opcodes.table import OpcodeTable
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.python import c_boundary, containers, operators
from jitney.capture.python.builtins import format_value
from jitney.capture.python.methods import call_bound
from jitney.capture.python.natives import mapping_items, to_text
from jitney.capture.python.type_slots import name_in_c

op = OpcodeTable()

NB_OPS = [text for _, text in dis._nb_ops]  # type: ignore[attr-defined]


@op("BINARY_OP")
def binary_op(vm: Any, frame: Frame, instr: Any) -> None:
    a, b = frame.pop_many(2)
    symbol = NB_OPS[instr.arg]
    frame.stack.append(containers.getitem(vm, a, b) if symbol == "[]" else operators.binary(vm, symbol, a, b))


@op("COMPARE_OP")
def compare_op(vm: Any, frame: Frame, instr: Any) -> None:
    a, b = frame.pop_many(2)
    value = operators.compare(vm, instr.argval, a, b)
    frame.stack.append(vm.truth(value) if PY313 and instr.arg & 16 else value)


@op("IS_OP")
def is_op(vm: Any, frame: Frame, instr: Any) -> None:
    a, b = frame.pop_many(2)
    frame.stack.append(operators.identical(vm, a, b) != bool(instr.arg))


@op("CONTAINS_OP")
def contains_op(vm: Any, frame: Frame, instr: Any) -> None:
    item, container = frame.pop_many(2)
    frame.stack.append(operators.contains(vm, container, item) != bool(instr.arg))


@op("UNARY_NEGATIVE")
def unary_negative(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(operators.unary(vm, "-", frame.stack.pop()))


@op("UNARY_POSITIVE")
def unary_positive(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(operators.unary(vm, "+", frame.stack.pop()))


@op("UNARY_INVERT")
def unary_invert(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(operators.unary(vm, "~", frame.stack.pop()))


@op("UNARY_NOT")
def unary_not(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(not vm.truth(frame.stack.pop()))


@op("TO_BOOL")
def to_bool(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(vm.truth(frame.stack.pop()))


@op("BINARY_SUBSCR")
def binary_subscr(vm: Any, frame: Frame, instr: Any) -> None:
    obj, key = frame.pop_many(2)
    frame.stack.append(containers.getitem(vm, obj, key))


@op("BINARY_SLICE")
def binary_slice(vm: Any, frame: Frame, instr: Any) -> None:
    obj, start, stop = frame.pop_many(3)
    frame.stack.append(containers.getitem(vm, obj, slice(start, stop)))


@op("STORE_SUBSCR")
def store_subscr(vm: Any, frame: Frame, instr: Any) -> None:
    value, obj, key = frame.pop_many(3)
    containers.setitem(vm, obj, key, value)


@op("STORE_SLICE")
def store_slice(vm: Any, frame: Frame, instr: Any) -> None:
    value, obj, start, stop = frame.pop_many(4)
    containers.setitem(vm, obj, slice(start, stop), value)


@op("DELETE_SUBSCR")
def delete_subscr(vm: Any, frame: Frame, instr: Any) -> None:
    obj, key = frame.pop_many(2)
    containers.delitem(vm, obj, key)


# ------------------------------------------------------------------ building


@op("BUILD_TUPLE")
def build_tuple(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(tuple(frame.pop_many(instr.arg)))


@op("BUILD_LIST")
def build_list(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(vm.world.mark_fresh(frame.pop_many(instr.arg)))


@op("BUILD_SET")
def build_set(vm: Any, frame: Frame, instr: Any) -> None:
    items = frame.pop_many(instr.arg)
    containers.settle_items(vm, items)
    frame.stack.append(vm.world.mark_fresh(vm.native(set, map(c_boundary.specialise, items))))


@op("BUILD_MAP")
def build_map(vm: Any, frame: Frame, instr: Any) -> None:
    items = frame.pop_many(2 * instr.arg)
    made = vm.world.mark_fresh({})
    for key, value in zip(items[::2], items[1::2], strict=True):
        containers.raw_setitem(vm, made, key, value)
    frame.stack.append(made)


@op("BUILD_CONST_KEY_MAP")
def build_const_key_map(vm: Any, frame: Frame, instr: Any) -> None:
    keys = frame.stack.pop()
    frame.stack.append(vm.world.mark_fresh(dict(zip(keys, frame.pop_many(instr.arg), strict=True))))


@op("BUILD_STRING")
def build_string(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append("".join(frame.pop_many(instr.arg)))


@op("BUILD_SLICE")
def build_slice(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(slice(*frame.pop_many(instr.arg)))


@op("LIST_TO_TUPLE")
def list_to_tuple(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(tuple(containers.iterable(vm, frame.stack.pop())))


def method(vm: Any, container: Any, name: str, *args: Any) -> None:
    """A container's method, on the shadow where the container is older than the frame (a comprehension resumed)."""
    call_bound(vm, getattr(container, name), container, name, list(args), {})


METHODS = {"LIST_APPEND": "append", "LIST_EXTEND": "extend", "SET_UPDATE": "update"}


@op(*METHODS)
def container_method(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    try:
        method(vm, frame.stack[-instr.arg], METHODS[instr.op], value)
    except UserRaised as raised:
        if instr.op == "LIST_EXTEND" and not (hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")):
            raised.value.args = (f"Value after * must be an iterable, not {name_in_c(type(value))}",)
        raise


@op("SET_ADD")
def set_add(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    containers.settle_items(vm, [value])
    method(vm, frame.stack[-instr.arg], "add", value)


@op("MAP_ADD")
def map_add(vm: Any, frame: Frame, instr: Any) -> None:
    key, value = frame.pop_many(2)
    containers.raw_setitem(vm, frame.stack[-instr.arg], key, value)


@op("DICT_UPDATE")
def dict_update(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    if not hasattr(type(value), "keys"):
        vm.raise_user(TypeError(f"{name_in_c(type(value))!r} object is not a mapping"))
    method(vm, frame.stack[-instr.arg], "update", value)


@op("DICT_MERGE")
def dict_merge(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    target = frame.stack[-instr.arg]
    items = mapping_items(vm, value)
    present = mapping_items(vm, target)
    if any(type(k) is not str or k in present for k in items):
        raise Break("a call with repeated or odd keyword arguments")
    method(vm, target, "update", items)


# ------------------------------------------------------------------ unpacking and text


def unpacked(vm: Any, value: Any) -> list[Any]:
    """All items of an iterable, as unpacking takes them."""
    if type(value) in (tuple, list) and vm.world.record_of(value) is None:
        return list(value)
    try:
        return list(vm.native(list, containers.iterable(vm, value)))
    except UserRaised as raised:
        if not (hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")):
            raised.value.args = (f"cannot unpack non-iterable {name_in_c(type(value))} object",)
        raise


@op("UNPACK_SEQUENCE")
def unpack_sequence(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack.pop()
    if hasattr(type(value), "__next__") and not isinstance(value, (list, tuple)):
        items = []
        for _ in range(instr.arg + 1):
            item = vm.native(next, containers.iterable(vm, value), UNPACK_END)
            if item is UNPACK_END:
                break
            items.append(item)
    else:
        items = unpacked(vm, value)
    if len(items) < instr.arg:
        vm.raise_user(ValueError(f"not enough values to unpack (expected {instr.arg}, got {len(items)})"))
    if len(items) > instr.arg:
        del value, items  # a generator that waits is closed before the handler of the error runs
        vm.raise_user(ValueError(f"too many values to unpack (expected {instr.arg})"))
    frame.stack += reversed(items)


UNPACK_END = object()


@op("UNPACK_EX")
def unpack_ex(vm: Any, frame: Frame, instr: Any) -> None:
    before, after = instr.arg & 0xFF, instr.arg >> 8
    value = frame.stack.pop()
    if c_boundary.python_method(vm, value, "__iter__") or c_boundary.python_method(vm, value, "__next__"):
        items = _unpacked_in_steps(vm, value, before)
    else:
        items = unpacked(vm, value)
    if len(items) < before + after:
        text = f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        vm.raise_user(ValueError(text))
    middle = vm.world.mark_fresh(items[before : len(items) - after])
    frame.stack += reversed([*items[:before], middle, *items[len(items) - after :]])


def _unpacked_in_steps(vm: Any, value: Any, before: int) -> list[Any]:
    """The items of the program's own iterable: those before the list, and what is left, of which it is asked again."""
    iterator = containers.get_iter(vm, value)
    items: list[Any] = []
    while len(items) < before:
        item = vm.call(next, iterator, UNPACK_END)
        if item is UNPACK_END:
            return items
        items.append(item)
    return items + unpacked(vm, iterator)


CONVERSIONS = {1: "__str__", 2: "__repr__"}


def converted(vm: Any, value: Any, how: int) -> Any:
    if how == 0:
        return value
    if how == 3:
        return to_text(vm, value, "__repr__").encode("ascii", "backslashreplace").decode()
    return to_text(vm, value, CONVERSIONS[how])


@op("FORMAT_VALUE")
def format_op(vm: Any, frame: Frame, instr: Any) -> None:
    spec = frame.stack.pop() if instr.arg & 4 else ""
    value = converted(vm, frame.stack.pop(), instr.arg & 3)
    frame.stack.append(format_value(vm, value, spec))


@op("CONVERT_VALUE")
def convert_value(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(converted(vm, frame.stack.pop(), instr.arg))


@op("FORMAT_SIMPLE")
def format_simple(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(format_value(vm, frame.stack.pop()))


@op("FORMAT_WITH_SPEC")
def format_with_spec(vm: Any, frame: Frame, instr: Any) -> None:
    value, spec = frame.pop_many(2)
    frame.stack.append(format_value(vm, value, spec))
