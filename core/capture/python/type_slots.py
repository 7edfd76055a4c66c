"""Attributes of objects whose class has a ``tp_getattro`` or ``tp_setattro`` of its own, in C.

A slot wrapper named ``__getattribute__`` may stand for the generic slot or another: so the slots are compared.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import types
from typing import Any, Protocol

from jitney.capture.interpreter.signals import Break
from jitney.capture.world.record import ABSENT


class Machine(Protocol):
    """What reading such an attribute needs of the interpreter, which stands above."""

    world: Any

    def call(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call anything and wait for its value."""


_get_slot = ctypes.pythonapi.PyType_GetSlot
_get_slot.restype = ctypes.c_void_p
_get_slot.argtypes = [ctypes.py_object, ctypes.c_int]

# Their numbers in CPython's typeslots.h, which is part of the stable ABI.
OLD_GETTER, GETTER, SETTER = 57, 58, 69
HONEST = (types.MethodType, types.ModuleType, types.GenericAlias, types.UnionType, super)  # about their ``__class__``


@functools.cache
def _is_generic(owner: type, slot: int) -> bool:
    return bool(_get_slot(owner, slot) == _get_slot(object, slot) and not _get_slot(owner, OLD_GETTER))


def reads_generically(getter: Any) -> bool:
    """Does a class's ``__getattribute__``, not written in Python, look attributes up as ``object``'s does?"""
    return _is_wrapper(getter, "__getattribute__") and _is_generic(getter.__objclass__, GETTER)


def writes_generically(setter: Any) -> bool:
    """Does a class's ``__setattr__`` or ``__delattr__``, not written in Python, write as ``object``'s does?"""
    return _is_wrapper(setter, "__setattr__", "__delattr__") and _is_generic(setter.__objclass__, SETTER)


def _is_wrapper(found: Any, *names: str) -> bool:
    """Does it call the slot of one of these names? A class may have any other method in the place of its own."""
    return type(found) is types.WrapperDescriptorType and found.__name__ in names


def is_borrowed(method: Any) -> bool:
    """Has a class another method in C in the place of one for attributes, as ``__setattr__ = dict.__setitem__``?"""
    kinds = (types.WrapperDescriptorType, types.MethodDescriptorType)
    return type(method) in kinds and method.__name__ not in ("__setattr__", "__delattr__")


def _c_class(slot_wrapper: Any) -> Any:
    return getattr(slot_wrapper, "__objclass__", None)


def is_data_descriptor(descriptor: Any) -> bool:
    """Does it take what is stored, before the instance's own ``__dict__``?"""
    kind = type(descriptor)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def is_own_slot(descriptor: Any) -> bool:
    """Is it one of ``__slots__``, which may be written? Members of C classes may be for reading only."""
    return type(descriptor) is types.MemberDescriptorType and "__slots__" in vars(descriptor.__objclass__)


def comes_first(descriptor: Any) -> bool:
    """Is it asked before the instance's own ``__dict__``?"""
    return is_data_descriptor(descriptor) and hasattr(type(descriptor), "__get__")


def of_c_class(kind: type, name: str) -> Any:
    """The slot wrapper of this name that is next in the order of a class, methods in Python left out."""
    found = (vars(c).get(name) for c in kind.__mro__)
    return next(f for f in found if type(f) is types.WrapperDescriptorType)


def may_claim_class(kind: type) -> bool:
    """May ``value.__class__`` be another than ``kind`` because C code says so, as that of a ``weakref.proxy``?"""
    getter = of_c_class(kind, "__getattribute__")
    return not (reads_generically(getter) or getter.__objclass__ in (*HONEST, LOCAL) or issubclass(kind, type))


def claims_class(value: Any, classes: tuple[type, ...]) -> bool:
    """Does ``isinstance`` take the value for one of these, though its class is none of them?"""
    kind = type(value)
    by_property = any("__class__" in vars(c) for c in kind.__mro__[:-1])
    if not (by_property or may_claim_class(kind)) or issubclass(kind, classes):
        return False
    try:
        return isinstance(value, classes)
    except ReferenceError:  # a proxy's object is gone, and was whatever it was
        return True


# ------------------------------------------------------------------ threading.local

LOCAL = _c_class(threading.local.__getattribute__)  # None where the one written in Python is in use


def is_local(value: Any) -> bool:
    """Is its ``__dict__`` the running thread's?"""
    return LOCAL is not None and isinstance(value, LOCAL)


def namespace(value: Any) -> Any:
    """The ``__dict__`` in which generic access finds an object's own attributes; AttributeError where it has none.

    A class of the program's may show another dictionary by this name, in which its attributes are not.
    """
    shown = next((vars(cls)["__dict__"] for cls in type(value).__mro__ if "__dict__" in vars(cls)), None)
    if type(shown) not in (types.GetSetDescriptorType, types.MemberDescriptorType, type(None)):
        raise Break(f"the __dict__ of a {type(value).__qualname__} is of its own making")
    return value.__dict__ if is_local(value) else object.__getattribute__(value, "__dict__")


def own_namespace(value: Any) -> dict[str, Any] | None:
    """The ``__dict__`` of an object, or None where it has none: maybe the object itself, or another one's."""
    try:
        found = namespace(value)
    except (AttributeError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def hides_namespace(kind: type) -> bool:
    """Do its instances keep attributes in a dictionary that they do not show, as type variables from Python 3.12 on?"""
    return bool(kind.__dictoffset__) and not any("__dict__" in vars(cls) for cls in kind.__mro__)


def hidden_attribute(value: Any, name: str) -> Any:
    """An attribute of its own of an object that hides its ``__dict__``, or ABSENT.

    Python is asked for what it finds, and what the class has is told apart. Such classes are written in C: nothing of
    the program's is called.
    """
    try:
        found = object.__getattribute__(value, name)
    except AttributeError:
        return ABSENT
    of_class: Any = next((vars(cls)[name] for cls in type(value).__mro__ if name in vars(cls)), ABSENT)
    if of_class is not ABSENT and hasattr(type(of_class), "__get__"):
        of_class = of_class.__get__(value, type(value))
    return ABSENT if found is of_class or (type(found) in _BOUND and found == of_class) else found


_BOUND = (types.BuiltinMethodType, types.MethodWrapperType)  # made anew each time

# ------------------------------------------------------------------ list[int]


class _Forwarded(Exception):
    pass


class _Probe:
    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":  # which anybody asks who looks through all objects that there are
            return _Probe
        raise _Forwarded


_alias_of_probe: Any = types.GenericAlias(_Probe(), ())  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)
def _forwards(name: str) -> bool:
    """Does ``list[int].name`` ask ``list``? Which names an alias answers itself differs from one Python to the next."""
    try:
        getattr(_alias_of_probe, name, None)
    except _Forwarded:
        return True
    return False


# ------------------------------------------------------------------ what they do


def read(vm: Machine, getter: Any, obj: Any, name: str) -> Any:
    """``obj.name`` by this ``__getattribute__``, which is not the generic one; ABSENT: as the generic one finds it."""
    owner = _c_class(getter)
    if owner is types.MethodType:
        own = any(name in vars(c) for c in owner.__mro__)  # of C classes, which nobody changes
        return ABSENT if own else vm.call(getattr, obj.__func__, name)
    if owner is types.GenericAlias:
        return vm.call(getattr, obj.__origin__, name) if _forwards(name) else ABSENT
    if owner is types.UnionType:
        return owner.__module__ if name == "__module__" else ABSENT
    if owner is LOCAL is not None:
        storage = vm.world.dict_record(vm.world.anchor(obj))
        return storage.value if name == "__dict__" and storage is not None else ABSENT
    raise Break(f"{name} of a {type(obj).__qualname__} is read, by C code of its own", "read it outside compiled code")


def check_write(setter: Any, obj: Any, name: str) -> None:
    """Break unless this ``__setattr__`` (or ``__delattr__``), which is not the generic one, does as that would."""
    if LOCAL is None or _c_class(setter) is not LOCAL or name == "__dict__":
        raise Break(
            f"{name} of a {type(obj).__qualname__} is set, by C code of its own", "set it outside compiled code"
        )


# ------------------------------------------------------------------ what C code puts into the errors of attributes

# Their own getters and setters: a class of the program's may have special methods for attributes.
NAME: Any = vars(AttributeError)["name"]
OBJ: Any = vars(AttributeError)["obj"]


_BEFORE, _BETWEEN, _AFTER = "bool.__new__(", "): ", " is not a subtype of bool"


def name_in_c(kind: type) -> str:
    """``tp_name``, by which messages call a class: that of a class written in C may have its module in it.

    Python is asked, by a message of its own: which classes have it there depends on its version.
    """
    try:
        bool.__new__(kind)
    except TypeError as error:
        twice = str(error).removeprefix(_BEFORE).removesuffix(_AFTER)
        return twice[: (len(twice) - len(_BETWEEN)) // 2]
    return "bool"


def lacking(obj: Any, name: str) -> AttributeError:
    """The error where an object has no such attribute."""
    return AttributeError(f"{name_in_c(type(obj))!r} object has no attribute {name!r}")


def complete(error: AttributeError, obj: Any, name: str) -> None:
    """Say what was looked for, as Python does with what methods raise that do not."""
    if NAME.__get__(error) is None is OBJ.__get__(error):
        NAME.__set__(error, name)
        OBJ.__set__(error, obj)
