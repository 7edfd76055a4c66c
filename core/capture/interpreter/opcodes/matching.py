"""Structural pattern matching."""

from __future__ import annotations

import collections.abc
import operator
from typing import Any

from jitney.capture.interpreter.frame import Frame
from jitney.capture.interpreter.opcodes.table import OpcodeTable
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.python import attributes, containers
from jitney.capture.python.type_slots import name_in_c
from jitney.capture.torch.stand_in_attributes import python_type
from jitney.capture.world.record import ABSENT

SEQUENCE, MAPPING = 1 << 5, 1 << 6  # Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING
MATCH_SELF = 1 << 22  # _Py_TPFLAGS_MATCH_SELF: int, str, list... and their subclasses

op = OpcodeTable()


@op("GET_LEN")
def get_len(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(containers.length(vm, frame.stack[-1]))


@op("MATCH_MAPPING")
def match_mapping(vm: Any, frame: Frame, instr: Any) -> None:
    _match_kind(vm, frame, collections.abc.Mapping, MAPPING)


@op("MATCH_SEQUENCE")
def match_sequence(vm: Any, frame: Frame, instr: Any) -> None:
    _match_kind(vm, frame, collections.abc.Sequence, SEQUENCE)


def _match_kind(vm: Any, frame: Frame, abstract: type, flag: int) -> None:
    """Python asks the class, not ``__class__``, and of a class that is both, what it was first."""
    kind = type(frame.stack[-1])
    vm.world.assumptions.asked(kind, abstract)
    vm.world.guard_bases(kind)
    frame.stack.append(bool(kind.__flags__ & flag))


@op("MATCH_KEYS")
def match_keys(vm: Any, frame: Frame, instr: Any) -> None:
    subject, keys = frame.stack[-2:]
    values: list[Any] = []
    get = attributes.load_attr(vm, subject, "get") if keys else None
    seen: set[Any] = set()
    for key in keys:
        if vm.native(operator.contains, seen, key):
            vm.raise_user(ValueError(f"mapping pattern checks duplicate key ({key!r})"))
        seen.add(key)
        values.append(vm.call(get, key, ABSENT))
        if values[-1] is ABSENT:
            frame.stack.append(None)
            return
    frame.stack.append(tuple(values))


@op("MATCH_CLASS")
def match_class(vm: Any, frame: Frame, instr: Any) -> None:
    subject, cls, names = frame.pop_many(3)
    if not isinstance(cls, type):
        raise Break("a class pattern of what is no class")
    if not vm.call(isinstance, subject, cls):
        frame.stack.append(None)
        return
    values, wanted = _positional(vm, subject, cls, instr.arg) if instr.arg else ([], [])
    seen: set[str] = set()
    for name in [*wanted, *names]:
        if type(name) is not str:
            kind = name_in_c(python_type(vm, name))
            vm.raise_user(TypeError(f"__match_args__ elements must be strings (got {kind})"))
        if name in seen:
            vm.raise_user(TypeError(f"{name_in_c(cls)}() got multiple sub-patterns for attribute {name!r}"))
        seen.add(name)
        try:
            values.append(attributes.load_attr(vm, subject, name))
        except UserRaised as raised:
            if not isinstance(raised.value, AttributeError):
                raise
            frame.stack.append(None)
            return
    frame.stack.append(tuple(values))


def _positional(vm: Any, subject: Any, cls: type, count: int) -> tuple[list[Any], list[Any]]:
    """What positional patterns are matched with: the subject itself, or attributes of these names."""
    whole = False
    try:
        match_args = attributes.load_attr(vm, cls, "__match_args__")
    except UserRaised as raised:
        if not isinstance(raised.value, AttributeError):
            raise
        match_args, whole = (), bool(cls.__flags__ & MATCH_SELF)
    if type(match_args) is not tuple:
        kind = name_in_c(python_type(vm, match_args))
        vm.raise_user(TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {kind})"))
    allowed = 1 if whole else len(match_args)
    if allowed < count:
        patterns = f"{allowed} positional sub-pattern{'s' if allowed != 1 else ''}"
        vm.raise_user(TypeError(f"{name_in_c(cls)}() accepts {patterns} ({count} given)"))
    return ([subject], []) if whole else ([], list(match_args[:count]))
