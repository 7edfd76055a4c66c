"""Structural pattern matching."""

from __future__ import annotations

import collections.abc
from typing import Any

from jitney.capture.interpreter.frame import Frame
from jitney.capture.interpreter.opcodes.table import OpcodeTable
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.python import attributes, containers, operators
from jitney.capture.python.attribute_errors import name_in_c

op = OpcodeTable()


@op("GET_LEN")
def get_len(vm: Any, frame: Frame, instr: Any) -> None:
    frame.stack.append(containers.length(vm, frame.stack[-1]))


@op("MATCH_MAPPING")
def match_mapping(vm: Any, frame: Frame, instr: Any) -> None:
    vm.world.trail.asked(type(frame.stack[-1]), collections.abc.Mapping)
    frame.stack.append(isinstance(frame.stack[-1], collections.abc.Mapping))


@op("MATCH_SEQUENCE")
def match_sequence(vm: Any, frame: Frame, instr: Any) -> None:
    value = frame.stack[-1]
    vm.world.trail.asked(type(value), collections.abc.Sequence)
    frame.stack.append(isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes, bytearray)))


@op("MATCH_KEYS")
def match_keys(vm: Any, frame: Frame, instr: Any) -> None:
    subject, keys = frame.stack[-2:]
    values = []
    for key in keys:
        if not operators.contains(vm, subject, key):
            frame.stack.append(None)
            return
        values.append(containers.getitem(vm, subject, key))
    frame.stack.append(tuple(values))


@op("MATCH_CLASS")
def match_class(vm: Any, frame: Frame, instr: Any) -> None:
    subject, cls, names = frame.pop_many(3)
    if not vm.call(isinstance, subject, cls):
        frame.stack.append(None)
        return
    positional = instr.arg
    attributes_wanted = list(names)
    values = []
    if positional:
        whole = cls in (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
        match_args = () if whole else attributes.load_attr(vm, cls, "__match_args__")
        allowed = 1 if whole else len(match_args)
        if allowed < positional:
            patterns = f"{allowed} positional sub-pattern{'s' if allowed != 1 else ''}"
            vm.raise_user(TypeError(f"{name_in_c(cls)}() accepts {patterns} ({positional} given)"))
        values += [subject] * whole
        attributes_wanted = [*match_args[:positional], *names]
        refused = type(match_args) is not tuple or any(type(name) is not str for name in attributes_wanted)
        if refused or len(set(attributes_wanted)) != len(attributes_wanted):
            raise Break(f"{name_in_c(cls)}.__match_args__ does not fit the pattern")  # Python says why
    for name in attributes_wanted:
        try:
            values.append(attributes.load_attr(vm, subject, name))
        except UserRaised as raised:
            if not isinstance(raised.value, AttributeError):
                raise
            frame.stack.append(None)
            return
    frame.stack.append(tuple(values))
