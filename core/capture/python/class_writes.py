"""Attributes of classes older than the frame: plain data (a counter) is written once the graph has run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import HEAP_TYPE
from jitney.capture.record import ABSENT

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

DESCRIPTOR = ("__get__", "__set__", "__delete__")


def store(vm: Interpreter, cls: type, name: str, value: Any) -> None:
    """``cls.name = value``, pending until the graph has run. A break where it is more than data."""
    special = name.startswith("__") or hasattr(type(cls), name) or not cls.__flags__ & HEAP_TYPE
    if special or not _data(value) or not _data(_found(cls, name)):
        raise Break(f"an attribute of the class {cls.__qualname__} is set", "set it outside compiled code")
    record = vm.world.anchor(cls)
    record.slots[name] = value
    record.dirty = True
    vm.class_writes[id(cls)] = record


def _data(value: Any) -> bool:
    """Is this neither a method nor another descriptor, nor a class, so that only reading the attribute shows it?"""
    return not callable(value) and not any(hasattr(type(value), name) for name in DESCRIPTOR)


def _found(cls: type, name: str) -> Any:
    return next((vars(owner)[name] for owner in cls.__mro__ if name in vars(owner)), ABSENT)


def pending(vm: Interpreter, classes: tuple[type, ...], name: str) -> Any:
    """What the frame has written to the first of these classes that has the attribute, or ``ABSENT``."""
    for i, cls in enumerate(classes):
        record = vm.class_writes.get(id(cls))
        if record is not None and name in record.slots:
            for earlier in classes[:i]:  # nobody gives it to a class that comes before
                if not vm.world.is_fresh(earlier):
                    vm.world.guard(vm.world.const(earlier).step("dict_of"), "lacks", name)
            return record.slots[name]
        if name in vars(cls):
            break
    return ABSENT
