"""Classes: those that the frame makes, what it writes to older ones, and what they have, under guards.

The body of a new class is interpreted, the class object is real. An attribute of an older class (plain data, such as a
counter) is written once the graph has run.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

from jitney._util.ownership import HEAP, trusted
from jitney.capture.interpreter.binding import closure_cells
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.frame import Frame
from jitney.capture.interpreter.signals import Break
from jitney.capture.python import type_slots
from jitney.capture.tables import FunctionTable
from jitney.capture.world.record import ABSENT

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

PYTHON_FUNCTION = types.FunctionType
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
    if special or not _is_data(value) or not _is_data(in_class(cls, name)):
        raise Break(f"an attribute of the class {cls.__qualname__} is set", "set it outside compiled code")
    if id(cls) in vm.listed_classes:
        raise Break(f"an attribute of the class {cls.__qualname__}, whose __dict__ has been read, is set")
    record = vm.world.anchor(cls)
    record.slots[name] = value
    record.dirty = True
    vm.class_writes[id(cls)] = record


def _is_data(value: Any) -> bool:
    """Is this neither a method nor another descriptor, nor a class, so that only reading the attribute shows it?"""
    return not callable(value) and not any(hasattr(type(value), name) for name in DESCRIPTOR)


def in_class(cls: type, name: str) -> Any:
    """What is under a name in a class or those that it inherits from, or ``ABSENT``; no guard."""
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


# ------------------------------------------------------------------ what a class has, guarded


def lookup(vm: Interpreter, kind: type, name: str) -> Any:
    """The raw attribute of a class through its method resolution order, guarded where users could change it."""
    if vm.class_writes and (written := written_class_attr(vm, kind.__mro__, name)) is not ABSENT:
        return written
    for owner in kind.__mro__:
        found = owner.__dict__.get(name, ABSENT)
        if found is not ABSENT:
            return class_entry(vm, kind, owner, name, found)
    if name.startswith("__"):
        guard_unhidden(vm, kind, None, name)
    else:
        guard_absence(vm, kind, name)
    return ABSENT


def guard_unhidden(vm: Interpreter, kind: type, owner: type | None, name: str) -> None:
    """Guard that no user's class before ``owner`` in the order of ``kind`` (None: no class at all) gets this name."""
    if owner is not kind:
        vm.world.guard_bases(kind)
    for cls in kind.__mro__:
        if cls is owner:
            return
        if not cls.__flags__ & HEAP or vm.world.is_fresh(cls):
            continue
        if trusted(cls):
            vm.world.assumptions.lack(cls, name)
        else:
            vm.world.guard_disjoint(vm.world.const(cls).step("dict_of"), name)


def guard_absence(vm: Interpreter, kind: type, name: str) -> None:
    """Guard that nobody adds this attribute to a user's class."""
    if not kind.__flags__ & HEAP or vm.world.is_fresh(kind):
        return
    if trusted(kind):
        vm.world.assumptions.lack_with_bases(kind, name)
    else:
        vm.world.guard(vm.world.const(kind), "lacks_class_attr", name)


def class_entry(vm: Interpreter, kind: type, owner: type, name: str, found: Any) -> Any:
    """What ``owner`` has under a name, read through ``kind``: guarded if it is code, which nobody wraps."""
    world = vm.world
    if world.is_fresh(kind):
        return found
    if trusted(owner) and trusted(kind):
        return world.take(kind, name, found)
    if owner.__flags__ & HEAP and type(found) in (PYTHON_FUNCTION, property) and not world.is_fresh(owner):
        if any(comes_first(vm, vars(meta)[name]) for meta in inspect.getmro(type(kind)) if name in vars(meta)):
            guard_unhidden(vm, kind, owner, name)  # ``kind.name`` is what the metaclass says, such as ``__name__``
            world.guard(world.const(owner).step("class_dict", name), "is", found)
        else:
            world.guard(world.const(kind).attr(name), "is", found)
        world.anchor(found)
        return found
    guard_unhidden(vm, kind, owner, name)
    if world.is_fresh(owner) or not owner.__flags__ & HEAP:
        return found
    fixed = type(found) in (staticmethod, classmethod, functools.cached_property)
    fixed = fixed or (name.startswith("__") and (found is None or callable(found)))
    if fixed or (hasattr(type(found), "__get__") and type(found).__flags__ & HEAP):
        world.guard(world.const(owner).step("class_dict", name), "is", found)
    return found


def names_of_class(vm: Interpreter, kind: type) -> list[str]:
    """What ``dir()`` lists of a class: the names that it and its bases have, which are guarded."""
    world = vm.world
    metas = [base for base in inspect.getmro(type(kind)) if not trusted(base)]
    if any(name in vars(meta) for meta in metas for name in ("__dict__", "__bases__", "__getattribute__")):
        raise Break(f"dir() of {kind.__qualname__}, whose metaclass says what it has")
    if any(id(base) in vm.class_writes for base in kind.__mro__):
        raise Break(f"dir() of {kind.__qualname__}, to which the frame has written")
    world.guard_bases(kind)
    for base in kind.__mro__:
        if trusted(base):
            world.assumptions.keep_private("dir() of a class")
        elif base.__flags__ & HEAP and not world.is_fresh(base):
            world.guard(world.const(base).step("dict_of"), "keys", [*vars(base)])
    found: list[str] = vm.native(dir, kind)
    return found


def namespace_of_class(vm: Interpreter, cls: type) -> Any:
    """``cls.__dict__``: a proxy of what the class has now, all guarded. The frame may not write to the class later."""
    world = vm.world
    metas = [base for base in inspect.getmro(type(cls)) if not trusted(base)]
    if id(cls) in vm.class_writes or any("__dict__" in vars(meta) for meta in metas):
        raise Break(f"the __dict__ of the class {cls.__qualname__} is read", "read it outside the compiled function")
    source = world.const(cls)
    world.guard(source.step("dict_of"), "keys", [*vars(cls)])
    found = {name: world.wrap(value, source.step("class_dict", name)) for name, value in vars(cls).items()}
    made = types.MappingProxyType(world.mark_fresh(found))
    world.add(made, source.step("dict_of"))
    world.views[id(made)] = made
    vm.listed_classes.add(id(cls))
    return made


def guard_hidden(vm: Interpreter, kind: type, name: str, hidden: Any) -> None:
    """Guard that what an instance has instead of this class attribute comes first: a property would come before it.

    What the frame has written to the class itself is data (``store_class_attr``).
    """
    owner = next((cls for cls in kind.__mro__ if cls.__dict__.get(name, ABSENT) is hidden), None)
    if owner is None or trusted(owner) or vm.world.is_fresh(owner) or not owner.__flags__ & HEAP:
        return
    vm.world.guard(vm.world.const(owner).step("class_dict", name), "type", type(hidden))


def comes_first(vm: Interpreter, descriptor: Any) -> bool:
    """Is it asked before the instance's own ``__dict__``? What its class has for that is guarded."""
    _guard_protocol(vm, type(descriptor), "__get__", "__set__", "__delete__")
    return type_slots.comes_first(descriptor)


def is_data_descriptor(vm: Interpreter, descriptor: Any) -> bool:
    """Does it take what is stored, before the instance's own ``__dict__``? Guarded, too."""
    _guard_protocol(vm, type(descriptor), "__set__", "__delete__")
    return type_slots.is_data_descriptor(descriptor)


def _guard_protocol(vm: Interpreter, kind: type, *names: str) -> None:
    if kind.__flags__ & HEAP and not trusted(kind):
        for name in names:
            lookup(vm, kind, name)
