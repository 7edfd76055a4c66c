"""Numbers that change as keys of a dictionary from outside: what handles of hooks are counted by.

Whether such a number is a key that there is, is asked by comparisons, which become guards; its value is not. The shadow
has the number that it is in this capture, and ``Record.numbers`` the symbol. Whoever may look at the shadow otherwise
asks for ``Record.content``, which makes constants of these keys; what is written by emitted code is constant, too.
"""

from __future__ import annotations

import collections
import types
from typing import Any

import torch

from jitney.capture.world.record import ABSENT, Record

COMPARED = (int, float, str)  # classes of keys among which a number is looked for by comparisons
MOST_KEYS = 32
BUILTIN = (dict, collections.OrderedDict)
METHODS = (types.MethodDescriptorType, types.BuiltinMethodType)


def get(vm: Any, record: Record | None, key: Any) -> Any:
    """What is under a number, or ``ABSENT``; where all keys are constants nothing is looked for."""
    if record is None or not knows(vm, record, key):
        return ABSENT
    at = _equal(record, key)
    return ABSENT if at is ABSENT else record.shadow[at]


def delete(vm: Any, record: Record | None, key: Any) -> bool:
    """``del record[key]`` where that is there, and a key is a number that changes."""
    if record is None or get(vm, record, key) is ABSENT:
        return False
    at = _equal(record, key)
    del record.shadow[at]
    record.numbers.pop(at, None)
    record.dirty = True
    return True


def put(vm: Any, record: Record | None, key: Any, value: Any) -> bool:
    """``record[key] = value`` for a number that changes; False where the key is to be a constant."""
    if record is None or not _is_comparable(vm, key) or not (type(key) is torch.SymInt or record.numbers):
        return False
    if not _is_one_of(BUILTIN, record.value) or record.exposed:
        return False
    keys = dict.keys(record.value if record.shadow is None else record.shadow)
    if len(keys) > MOST_KEYS or not all(_is_one_of(COMPARED, other) for other in (*keys, *record.overlay)):
        return False
    vm.world.read_dictionary(record)
    at = _equal(record, key)
    if at is ABSENT:
        at = vm.symbols.scalars.hint(key)
        if type(key) is torch.SymInt:
            record.numbers[at] = key
    record.shadow[at] = value
    record.dirty = True
    return True


def spread(vm: Any, record: Record | None, owner: Any, name: str) -> list[Any] | None:
    """What ``[*owner.items()]`` goes through, where the call is in such a display: nobody else sees the view."""
    if record is None or not _is_one_of(BUILTIN, owner) or record.exposed or not _is_spread(vm, owner):
        return None
    vm.world.read_dictionary(record)
    keys = [record.numbers.get(key, key) for key in record.shadow]
    found = {"keys": keys, "values": [*record.shadow.values()]}
    found["items"] = [*zip(keys, found["values"], strict=True)]
    made: list[Any] = vm.world.mark_fresh(found[name])
    return made


def knows(vm: Any, record: Record, key: Any) -> bool:
    """Are there keys that are numbers which change, and may this one be compared with them?"""
    return bool(record.numbers) and _is_comparable(vm, key)


def _is_comparable(vm: Any, key: Any) -> bool:
    return _is_one_of((int, torch.SymInt), key) and bool(vm.symbols.scalars.compares(key))


def _is_one_of(classes: tuple[type, ...], value: Any) -> bool:
    """By identity: a metaclass of the program's may compare its classes otherwise."""
    return any(type(value) is cls for cls in classes)


def _equal(record: Record, key: Any) -> Any:
    for other in record.shadow:
        if type(other) is not str and bool(key == record.numbers.get(other, other)):
            return other
    return ABSENT


def _is_spread(vm: Any, owner: Any) -> bool:
    """Is the instruction a call of a method of this very dictionary's, and is the next one to extend a list by it?"""
    frame = vm.frames[-1]
    if frame.at + 1 >= len(frame.instrs) or frame.instrs[frame.at + 1].op != "LIST_EXTEND":
        return False
    called = frame.instrs[frame.at]
    methods = [v for v in frame.saved[-2:] if _is_one_of(METHODS, v)]
    bound = any(v is owner for v in frame.saved[-2:]) or any(getattr(v, "__self__", None) is owner for v in methods)
    return called.op == "CALL" and called.arg == 0 and bool(methods) and bound
