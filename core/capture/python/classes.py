"""Classes that the frame makes, and what it writes to older ones.

The body of a new class is interpreted, the class object is real. An attribute of an older class (plain data, such as a
counter) is written once the graph has run.
"""

from __future__ import annotations

import builtins
import dataclasses
import types
from typing import TYPE_CHECKING, Any

from jitney._util.ownership import HEAP
from jitney.capture.interpreter.binding import closure_cells
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.frame import Frame
from jitney.capture.interpreter.signals import Break
from jitney.capture.tables import FunctionTable
from jitney.capture.world.record import ABSENT

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

PLAIN_METACLASSES: tuple[type, ...] = (type,)
DESCRIPTOR = ("__get__", "__set__", "__delete__")

special = FunctionTable()


@dataclasses.dataclass
class _Sample:
    pass


@special(builtins.__build_class__)
def build_class(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """``__build_class__(body, name, *bases)``."""
    body, name, *bases = args
    if kwargs or any(not isinstance(b, type) for b in bases):
        raise Break(f"the class {name} is made with keywords or unusual bases", "define it at the top of the file")
    meta = type(bases[0]) if bases else type
    if any(type(b) not in PLAIN_METACLASSES for b in bases):
        raise Break(f"the class {name} has the metaclass {meta.__name__}", "define it at the top of the file")
    for base in bases:
        if "__init_subclass__" in vars(base):
            raise Break(f"the class {name} runs __init_subclass__", "define it at the top of the file")
    namespace: dict[str, Any] = {}
    frame = Frame(decode(body.__code__), body.__globals__, {}, {}, body)
    frame.namespace = namespace
    frame.cells.update(zip(body.__code__.co_freevars, closure_cells(vm, body), strict=True))
    vm.finish(frame)
    cell = namespace.get("__classcell__")
    # A __class__ cell must be filled by type.__new__ with the class itself.
    hooks = {k: v for k, v in namespace.items() if hasattr(type(v), "__set_name__")}
    if any(isinstance(getattr(type(v), "__set_name__", None), types.FunctionType) for v in hooks.values()):
        if not all(type(v).__module__ in ("functools",) for v in hooks.values()):
            raise Break(f"the class {name} runs __set_name__", "define it at the top of the file")
    cls = new_class(vm, vm.native(type, name, tuple(bases), dict(namespace)))
    if isinstance(cell, types.CellType):
        vm.world.mark_fresh(cell)
    return cls


def new_class(vm: Interpreter, cls: type) -> type:
    """Register a class that the frame has made."""
    vm.world.class_steps[id(cls)] = vm.break_step()
    vm.world.mark_fresh(cls)
    return cls


def _repr_of_dataclass(vm: Interpreter, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The ``__repr__`` that ``dataclasses`` generates: dots where an object leads back to itself."""
    held = dict(zip(fn.__code__.co_freevars, closure_cells(vm, fn), strict=True))
    generated = held["user_function"].cell_contents
    if any(frame.func is generated and frame.locals.get("self") is args[0] for frame in vm.frames):
        return held["fillvalue"].cell_contents if "fillvalue" in held else "..."
    return vm.call(generated, *args, **kwargs)  # a break within is a break at the call of ``repr``


special.codes[id(vars(_Sample)["__repr__"].__code__)] = _repr_of_dataclass


# ------------------------------------------------------------------ writes to older classes


def store_class_attr(vm: Interpreter, cls: type, name: str, value: Any) -> None:
    """``cls.name = value``, pending until the graph has run. A break where it is more than data."""
    special = name.startswith("__") or hasattr(type(cls), name) or not cls.__flags__ & HEAP
    if special or not _is_data(value) or not _is_data(_in_class(cls, name)):
        raise Break(f"an attribute of the class {cls.__qualname__} is set", "set it outside compiled code")
    record = vm.world.anchor(cls)
    record.slots[name] = value
    record.dirty = True
    vm.class_writes[id(cls)] = record


def _is_data(value: Any) -> bool:
    """Is this neither a method nor another descriptor, nor a class, so that only reading the attribute shows it?"""
    return not callable(value) and not any(hasattr(type(value), name) for name in DESCRIPTOR)


def _in_class(cls: type, name: str) -> Any:
    return next((vars(owner)[name] for owner in cls.__mro__ if name in vars(owner)), ABSENT)


def written_class_attr(vm: Interpreter, classes: tuple[type, ...], name: str) -> Any:
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
