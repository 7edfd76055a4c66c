"""Attribute access with Python's own rules, on objects from outside (guarded, overlaid) and on fresh ones."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import HEAP, trusted
from jitney.capture.interpreter import tracebacks
from jitney.capture.interpreter.binding import held
from jitney.capture.interpreter.code import PY313
from jitney.capture.interpreter.generators import InterpretedGenerator, Reentrant
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.kinds import ATOMS, PLAIN_TENSORS, STAND_INS, UNCHANGING, is_stand_in
from jitney.capture.numpy.stand_in import Array
from jitney.capture.original_functions import is_own
from jitney.capture.python import type_slots
from jitney.capture.python.classes import (
    PYTHON_FUNCTION,
    class_entry,
    comes_first,
    guard_absence,
    guard_hidden,
    guard_unhidden,
    is_data_descriptor,
    lookup,
    names_of_class,
    namespace_of_class,
    store_class_attr,
    written_class_attr,
)
from jitney.capture.torch.classes import tensor_classes
from jitney.capture.torch.lazy_modules import attribute_asked, class_asked
from jitney.capture.torch.stand_in_attributes import (
    SYMBOLIC,
    python_type,
    stand_in_attr,
    store_tensor_attr,
    tensor_attr,
    tensor_entry,
)
from jitney.capture.world.cells import cell_get
from jitney.capture.world.record import ABSENT, Record
from jitney.torch_compat import subclasses

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

SLOT_LIKE = (types.GetSetDescriptorType, types.MemberDescriptorType)
DIRECT = (*ATOMS, torch.Size, torch.dtype, torch.device, range, slice, torch.layout, torch.memory_format)
MODULE_GETATTR = torch.nn.Module.__getattr__ if is_own(torch.nn.Module.__getattr__) else None


def load_attr(vm: Interpreter, obj: Any, name: str) -> Any:
    """``obj.name``. Raises ``UserRaised(AttributeError)`` where Python would raise it."""
    try:
        return _load_attr(vm, obj, name)
    except UserRaised as raised:
        error = raised.value
        if isinstance(error, AttributeError) and vm.world.record_of(error) is None:
            type_slots.complete(error, obj, name)
        raise


def _load_attr(vm: Interpreter, obj: Any, name: str) -> Any:
    kind = type(obj)
    if kind in DIRECT:
        return vm.native(getattr, obj, name)
    if kind in STAND_INS:
        return _stand_in_attr(vm, obj, name)
    if kind is Array:
        return vm.handlers.arrays.attr(vm, obj, name)
    if issubclass(kind, type):
        return class_attr(vm, obj, name)
    if issubclass(kind, types.ModuleType):
        return _module_attr(vm, obj, name)
    if kind is super:
        return _super_attr(vm, obj, name)
    if kind in SYMBOLIC or kind is InterpretedGenerator:
        return stand_in_attr(vm, obj, name)
    getter = lookup(vm, kind, "__getattribute__")
    if type(getter) is PYTHON_FUNCTION:
        try:
            return vm.call(getter, obj, name)
        except UserRaised as raised:
            if not isinstance(raised.value, AttributeError):
                raise
            return _fallback(vm, obj, kind, name, raised)
    value = ABSENT if type_slots.reads_generically(getter) else type_slots.read(vm, getter, obj, name)
    return generic_attr(vm, obj, name) if value is ABSENT else value


def _stand_in_attr(vm: Interpreter, obj: Any, name: str) -> Any:
    """An attribute of a tensor: what a class of the program's has for all of its tensors comes before torch's."""
    kind = python_type(vm, obj)
    if kind in PLAIN_TENSORS or tensor_classes.owner_of(kind, name) is None:
        if kind not in PLAIN_TENSORS and not subclasses.wraps(kind):
            guard_unhidden(vm, kind, torch.Tensor, name)
        return tensor_attr(vm, obj, name)
    descriptor = lookup(vm, kind, name)
    if not comes_first(vm, descriptor) and (value := tensor_entry(vm, obj, name)) is not ABSENT:
        return value
    return bind(vm, descriptor, obj, kind, name)


def generic_attr(vm: Interpreter, obj: Any, name: str, fallback: bool = True) -> Any:
    """``object.__getattribute__`` followed, if ``fallback``, by the class's ``__getattr__``."""
    attribute_asked(vm, obj, name)
    kind = type(obj)
    descriptor = lookup(vm, kind, name)
    if descriptor is ABSENT or not comes_first(vm, descriptor):
        if descriptor is ABSENT and fallback and kind is not dict and lookup(vm, kind, "__getattr__") is MODULE_GETATTR:
            value = _registered(vm, obj, name)
            if value is not ABSENT:
                return value
        value = instance_get(vm, obj, name)
        if value is not ABSENT:
            if descriptor is not ABSENT:
                guard_hidden(vm, kind, name, descriptor)
            return value
    if descriptor is not ABSENT:
        try:
            return bind(vm, descriptor, obj, kind, name)
        except UserRaised as raised:
            if fallback and isinstance(raised.value, AttributeError):
                return _fallback(vm, obj, kind, name, raised)
            raise
    error = type_slots.lacking(obj, name)
    type_slots.complete(error, obj, name)
    if fallback:
        return _fallback(vm, obj, kind, name, UserRaised(error))
    return vm.raise_user(error)


def _fallback(vm: Interpreter, obj: Any, kind: type, name: str, raised: UserRaised) -> Any:
    getter = lookup(vm, kind, "__getattr__")
    if getter is ABSENT:
        try:
            raise raised
        finally:
            del raised  # which would hold this frame, and by that what callers hold
    if getter is MODULE_GETATTR:
        value = _nn_module_attr(vm, obj, name)
        if value is not ABSENT:
            return value
    return vm.call(getter, obj, name)


def _registered(vm: Interpreter, obj: Any, name: str) -> Any:
    """A parameter, buffer or submodule of a module from outside. nn.Module keeps such names out of ``__dict__``."""
    record = vm.world.record_of(obj)
    storage = vm.world.dict_record(record) if record is not None else None
    if storage is None or name in storage.value or name in storage.overlay:
        return ABSENT
    return _nn_module_attr(vm, obj, name)


def _nn_module_attr(vm: Interpreter, obj: Any, name: str) -> Any:
    """What ``nn.Module.__getattr__`` does, without interpreting it: parameters, buffers, submodules."""
    owner = vm.world.record_of(obj)
    whole = vm.world.dict_record(owner) if owner is not None else None
    for table in ("_parameters", "_buffers", "_modules"):
        if whole is not None and whole.content is None and table not in whole.overlay:
            # The table's class needs no guard: what is read is fetched from it at each call.
            storage = whole.value.get(table)
            if not isinstance(storage, dict) or (name not in storage and vm.world.record_of(storage) is None):
                continue
            if vm.world.record_of(storage) is None:
                vm.world.add(storage, whole.source.item(table))
        else:
            storage = instance_get(vm, obj, table)
        if storage is ABSENT or not isinstance(storage, dict):
            continue
        record = vm.world.record_of(storage)
        if record is None:
            if name in storage:
                return storage[name]
        elif record.content is not None or record.overlay:
            value = vm.world.dict_get(record, name)
            if value is not ABSENT:
                return value
        elif dict.__contains__(storage, name):
            return vm.world.dict_get(record, name)
    return ABSENT


# ------------------------------------------------------------------ classes


def class_attr(vm: Interpreter, cls: type, name: str) -> Any:
    """``cls.name``: the metaclass's data descriptors, the class's own attributes, then the metaclass's."""
    meta = type(cls)
    if vm.class_writes and (written := written_class_attr(vm, cls.__mro__, name)) is not ABSENT:
        return written
    if name == "__dict__" and not vm.world.is_fresh(cls) and (id(cls) in vm.class_writes or not trusted(cls)):
        return namespace_of_class(vm, cls)
    if name == "__dict__" or name == "__mro__" or name == "__class__":
        return vm.native(getattr, cls, name)
    meta_entry = lookup(vm, meta, name)
    if meta_entry is not ABSENT and comes_first(vm, meta_entry):
        return bind(vm, meta_entry, cls, meta, name)
    for owner in cls.__mro__:
        found = owner.__dict__.get(name, ABSENT)
        if found is ABSENT:
            continue
        kind = type(found)
        if kind is PYTHON_FUNCTION:
            return class_entry(vm, cls, owner, name, found)
        if kind is staticmethod or kind is classmethod:
            class_entry(vm, cls, owner, name, found)
            return bind(vm, found, None, cls, name)
        if kind is torch.distributions.utils.lazy_property:  # a property made for this very access
            class_entry(vm, cls, owner, name, found)
            return vm.world.mark_fresh(vm.native(getattr, cls, name))
        if hasattr(kind, "__get__"):
            getter = lookup(vm, kind, "__get__")
            if type(getter) is PYTHON_FUNCTION:
                return vm.call(getter, found, None, cls)
            return vm.native(getattr, cls, name)
        return _class_data(vm, cls, owner, name, found)
    guard_absence(vm, cls, name)
    if meta_entry is not ABSENT:
        return bind(vm, meta_entry, cls, meta, name)
    getter = lookup(vm, meta, "__getattr__")
    if type(getter) is PYTHON_FUNCTION and not trusted(meta):
        return vm.call(getter, cls, name)
    return vm.native(getattr, cls, name)


def _class_data(vm: Interpreter, kind: type, owner: type, name: str, found: Any) -> Any:
    """A plain value in a class, read through ``kind``: a subclass may come to hide it."""
    world = vm.world
    if world.is_fresh(owner) or not owner.__flags__ & HEAP:
        return found
    if type(found) in (type(None), bool, str) and trusted(owner):
        return found
    if kind is not owner and not world.is_fresh(kind) and getattr(kind, name, ABSENT) is found:
        return world.wrap(found, world.const(kind).attr(name))
    return world.wrap(found, world.const(owner).step("class_dict", name))


def bind(vm: Interpreter, descriptor: Any, obj: Any, owner: type, name: str) -> Any:
    """``descriptor.__get__(obj, owner)``; ``obj`` is None for access through the class."""
    kind = type(descriptor)
    if kind is PYTHON_FUNCTION:
        return descriptor if obj is None else types.MethodType(descriptor, obj)
    if kind is property:
        if descriptor.fget is None:
            return vm.native(descriptor.__get__, obj, owner)
        return vm.call(held(vm, descriptor, "fget"), obj)
    if kind is staticmethod:
        return held(vm, descriptor, "__func__")
    if kind is classmethod:
        function = held(vm, descriptor, "__func__")
        if type(function) is PYTHON_FUNCTION or PY313 or lookup(vm, type(function), "__get__") is ABSENT:
            return vm.native(types.MethodType, function, owner)
        return bind(vm, function, owner, owner, name)  # until 3.13, class methods wrap other descriptors
    if kind is functools.cached_property:
        return _cached_property(vm, descriptor, obj)
    if kind in SLOT_LIKE:
        return slot_get(vm, descriptor, obj, owner, name)
    if kind in (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType):
        return vm.native(descriptor.__get__, obj, owner)
    getter = lookup(vm, kind, "__get__")
    if getter is ABSENT:
        return _instance_entry(vm, owner, name, descriptor)
    if type(getter) is PYTHON_FUNCTION:
        return vm.call(getter, descriptor, obj, owner)
    if type(getter).__flags__ & HEAP:  # an object that is called: it may do anything
        raise Break(f"a {kind.__qualname__} whose __get__ is no function is read")
    return vm.native(descriptor.__get__, obj, owner)


def _instance_entry(vm: Interpreter, kind: type, name: str, found: Any) -> Any:
    """A plain class attribute read through an instance."""
    for owner in kind.__mro__:
        if owner.__dict__.get(name, ABSENT) is found:
            return _class_data(vm, kind, owner, name, found)
    return found


def _cached_property(vm: Interpreter, descriptor: Any, obj: Any) -> Any:
    if obj is None:
        return descriptor
    value = vm.call(held(vm, descriptor, "func"), obj)
    instance_set(vm, obj, descriptor.attrname, value)
    return value


def slot_get(vm: Interpreter, descriptor: Any, obj: Any, owner: type, name: str) -> Any:
    """A C-level attribute: ``__slots__``, ``__dict__``, ``__class__``, a function's ``__code__``..."""
    if obj is None:
        return descriptor
    if name == "__class__":
        class_asked(vm, obj)
        return python_type(vm, obj)
    record = vm.world.record_of(obj)
    if name == "__dict__":
        if record is not None:
            storage = vm.world.dict_record(record)
            if storage is not None:
                return storage.value
        return vm.native(descriptor.__get__, obj, owner)
    if record is None:
        if owner in tracebacks.KEPT:
            tracebacks.refuse_read(obj, name, vm.world.assumptions)
        value = vm.native(descriptor.__get__, obj, owner)
        if type(value) is Reentrant:  # what C code was given to call: a default factory
            return value.fn
        if name == "__context__" and value is None and id(obj) in vm.raised_at:
            vm.ask_outside()
        if isinstance(value, torch.Tensor) and not is_stand_in(value):
            raise Break(f"a tensor behind the C attribute {owner.__name__}.{name}")
        return value
    if name in record.slots:
        if record.slots[name] is ABSENT:
            return vm.raise_user(AttributeError(f"{owner.__name__!r} object has no attribute {name!r}"))
        return record.slots[name]
    if name == "cell_contents":
        return cell_get(vm, obj, "")
    try:
        value = descriptor.__get__(obj, owner)
    except AttributeError as error:
        vm.world.guard(record.source, "lacks_attr", name)
        return vm.raise_user(error)
    except Exception as error:
        raise Break(f"{owner.__qualname__}.{name} raises {type(error).__name__}") from None
    if type(value) in SYMBOLIC or is_stand_in(value):  # a named field: an item that was wrapped
        return value
    if record.source.is_const and trusted(obj) and isinstance(value, (str, int, type(None))):
        return value
    return vm.world.wrap(value, record.source.attr(name))


# ------------------------------------------------------------------ instances


def instance_get(vm: Interpreter, obj: Any, name: str) -> Any:
    """An entry of the object's ``__dict__``, or ``ABSENT``."""
    world = vm.world
    record = world.record_of(obj)
    if type_slots.hides_namespace(type(obj)):
        found = type_slots.hidden_attribute(obj, name)
        return found if found is ABSENT or record is None else world.wrap(found, record.source.attr(name))
    if record is None:
        if not world.is_fresh(obj):
            if not type(obj).__dictoffset__:
                return ABSENT
            record = world.anchor(obj)
        else:
            storage = type_slots.own_namespace(obj)
            return ABSENT if storage is None else dict.get(storage, name, ABSENT)
    storage_record = world.dict_record(record)
    return ABSENT if storage_record is None else world.dict_get(storage_record, name)


def instance_set(vm: Interpreter, obj: Any, name: str, value: Any) -> None:
    """Set an entry of the object's ``__dict__``: at once if it is fresh, pending otherwise."""
    record = vm.world.record_of(obj)
    storage = None
    if record is not None:
        storage = vm.world.dict_record(record)
    elif vm.world.is_fresh(obj):
        fresh = type_slots.own_namespace(obj)
        if fresh is not None:
            dict.__setitem__(fresh, name, value)
            return
    if storage is None:
        if vm.world.is_fresh(obj) and lookup(vm, type(obj), name) is ABSENT:
            vm.native(setattr, obj, name, value)  # which says that there is none
            return
        raise Break(f"an attribute of a {type(obj).__qualname__} is set", "set it outside compiled code")
    vm.world.dict_set(storage, name, value)


def store_attr(vm: Interpreter, obj: Any, name: str, value: Any) -> None:
    """``obj.name = value``."""
    kind = type(obj)
    if kind in STAND_INS:
        cls = python_type(vm, obj)
        if tensor_classes.owner_of(cls, name) is not None and is_data_descriptor(vm, lookup(vm, cls, name)):
            _descriptor_store(vm, lookup(vm, cls, name), obj, name, value)
            return
        store_tensor_attr(vm, obj, name, value)
        return
    if kind is Array:
        raise Break(f"ndarray.{name} is set", "set it outside compiled code")
    setter = lookup(vm, kind, "__setattr__")
    if type(setter) is PYTHON_FUNCTION or type_slots.is_borrowed(setter):
        vm.call(setter, obj, name, value)
    else:
        if not (issubclass(kind, type) or type_slots.writes_generically(setter)):
            type_slots.check_write(setter, obj, name)
        generic_store(vm, obj, name, value)


def generic_store(vm: Interpreter, obj: Any, name: str, value: Any) -> None:
    """``object.__setattr__``."""
    kind = type(obj)
    if issubclass(kind, type):
        if vm.world.is_fresh(obj):
            vm.native(setattr, obj, name, value)
            return
        store_class_attr(vm, obj, name, value)
        return
    descriptor = lookup(vm, kind, name)
    if descriptor is not ABSENT and is_data_descriptor(vm, descriptor):
        _descriptor_store(vm, descriptor, obj, name, value)
        return
    instance_set(vm, obj, name, value)


def _descriptor_store(vm: Interpreter, descriptor: Any, obj: Any, name: str, value: Any) -> None:
    if type(descriptor) is property and descriptor.fset is not None:
        vm.call(held(vm, descriptor, "fset"), obj, value)
        return
    if type(descriptor) in SLOT_LIKE:
        record = vm.world.record_of(obj)
        if name == "__dict__" and vm.world.is_fresh(obj) and vm.world.is_fresh(value) and isinstance(value, dict):
            vm.native(descriptor.__set__, obj, value)
            return
        if name in ("__class__", "__dict__"):
            raise Break(f"{name} is set", "set it outside compiled code")
        if record is None and (vm.world.is_fresh(obj) or isinstance(obj, BaseException)):
            vm.native(descriptor.__set__, obj, value)
        elif record is not None and type_slots.is_own_slot(descriptor):
            record.slots[name] = value
            record.dirty = True
        else:
            raise Break(f"the attribute {name} of a {type(obj).__qualname__} is set", "set it outside compiled code")
        return
    setter = lookup(vm, type(descriptor), "__set__")
    if type(setter) is PYTHON_FUNCTION:
        vm.call(setter, descriptor, obj, value)
    elif type(setter).__flags__ & HEAP:
        raise Break(f"a {type(descriptor).__qualname__} whose __set__ is no function is written to")
    else:
        vm.native(descriptor.__set__, obj, value)


def delete_attr(vm: Interpreter, obj: Any, name: str) -> None:
    """``del obj.name``."""
    if type(obj) is Array:
        raise Break(f"ndarray.{name} is deleted")
    if type(obj) in STAND_INS:
        raise Break(f"the attribute {name} of a tensor is deleted", "delete it outside compiled code")
    deleter = lookup(vm, type(obj), "__delattr__")
    if type(deleter) is PYTHON_FUNCTION or type_slots.is_borrowed(deleter):
        vm.call(deleter, obj, name)
    else:
        if not (isinstance(obj, type) or type_slots.writes_generically(deleter)):
            type_slots.check_write(deleter, obj, name)
        generic_delete(vm, obj, name)


def generic_delete(vm: Interpreter, obj: Any, name: str) -> None:
    """``object.__delattr__``."""
    kind = type(obj)
    if issubclass(kind, type):
        if not vm.world.is_fresh(obj):
            raise Break(f"an attribute of the class {obj.__qualname__} is deleted", "delete it outside compiled code")
        vm.native(type.__delattr__, obj, name)
        return
    descriptor = lookup(vm, kind, name)
    if type(descriptor) is property and descriptor.fdel is not None:
        vm.call(held(vm, descriptor, "fdel"), obj)
        return
    if descriptor is not ABSENT and is_data_descriptor(vm, descriptor):
        deleter = lookup(vm, type(descriptor), "__delete__")
        if type(deleter) is PYTHON_FUNCTION:
            vm.call(deleter, descriptor, obj)
            return
        record = vm.world.record_of(obj)
        if record is not None and type_slots.is_own_slot(descriptor):
            slot_get(vm, descriptor, obj, kind, name)
            record.slots[name] = ABSENT
            record.dirty = True
            return
        if not vm.world.is_fresh(obj):
            raise Break(f"the attribute {name} of a {kind.__qualname__} is deleted")
        vm.native(descriptor.__delete__, obj)
        return
    if instance_get(vm, obj, name) is ABSENT:
        vm.raise_user(type_slots.lacking(obj, name))
    record = vm.world.record_of(obj)
    storage: Record | None = vm.world.dict_record(record) if record is not None else None
    if storage is not None:
        vm.world.dict_delete(storage, name)
    else:
        vm.native(object.__delattr__, obj, name)


# ------------------------------------------------------------------ modules, super, tensors


def _module_attr(vm: Interpreter, module: types.ModuleType, name: str) -> Any:
    world = vm.world
    space: Any = module.__dict__
    if space is None:  # made by ``ModuleType.__new__`` alone
        return vm.native(getattr, module, name)
    if type(space) is not dict:
        raise Break("a module whose class has its own __dict__")
    record = world.anchor(module)
    storage = world.dict_record(record)
    if storage is not None and name in storage.overlay:
        return storage.overlay[name]
    value = module.__dict__.get(name, ABSENT)
    if value is ABSENT:
        if trusted(module):
            world.assumptions.lack(module, name)
        else:
            world.guard(record.source.step("dict_of"), "lacks", name)
            getter = ABSENT
            if "__getattr__" in module.__dict__:
                getter = _module_attr(vm, module, "__getattr__")
            else:
                world.guard(record.source.step("dict_of"), "lacks", "__getattr__")
            if getter is not ABSENT and not hasattr(types.ModuleType, name):
                return vm.call(getter, name)
        return _computed(vm, module, name)
    reader = vm.frames[-1].globals if vm.frames else {}
    if trusted(module) and trusted(reader) and isinstance(value, UNCHANGING):
        return world.take(module, name, value)
    if isinstance(value, UNCHANGING):
        world.guard(record.source.attr(name), "is", value)
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)):
            world.anchor(value)
        return value
    return world.wrap(value, record.source.attr(name))


def _computed(vm: Interpreter, module: types.ModuleType, name: str) -> Any:
    """What a module computes: by a ``__getattr__``, or by a class of its own, as the flags of ``torch.backends``."""
    value = vm.native(getattr, module, name)
    if trusted(module) and isinstance(value, ATOMS):
        return vm.world.wrap(value, vm.world.const(module).attr(name))
    if trusted(module) and type(module) is not types.ModuleType and isinstance(value, UNCHANGING):
        return vm.world.take(module, name, value)
    return value


def _super_attr(vm: Interpreter, obj: Any, name: str) -> Any:
    this, owner, bound = obj.__thisclass__, obj.__self_class__, vm.supers.get(obj, obj.__self__)
    if name == "__class__" or owner is None:
        return vm.native(getattr, obj, name)
    mro = owner.__mro__
    vm.world.guard_bases(owner)
    later = mro[mro.index(this) + 1 :]
    if vm.class_writes and (written := written_class_attr(vm, later, name)) is not ABSENT:
        return written
    for kind in later:
        found = kind.__dict__.get(name, ABSENT)
        if found is ABSENT and trusted(kind):
            vm.world.assumptions.lack(kind, name)
        elif found is ABSENT and not vm.world.is_fresh(kind) and kind.__flags__ & HEAP:
            vm.world.guard(vm.world.const(kind).step("dict_of"), "lacks", name)
        if found is not ABSENT:
            if not trusted(kind) and not vm.world.is_fresh(kind) and kind.__flags__ & HEAP:
                vm.world.guard(vm.world.const(kind).step("class_dict", name), "is", found)
            target = None if bound is owner else bound
            return bind(vm, found, target, owner, name)
    return vm.raise_user(AttributeError(f"'super' object has no attribute {name!r}", name=name, obj=obj))


# ------------------------------------------------------------------ dir()


def names_of(vm: Interpreter, obj: Any) -> list[str]:
    """What ``dir(obj)`` lists where no method of the program's says: what an object and its classes have, guarded."""
    if isinstance(obj, types.ModuleType) and trusted(obj):
        vm.world.assumptions.keep_private("dir() of a module")
        return vm.world.mark_fresh(vm.native(dir, obj))
    if isinstance(obj, type):
        return vm.world.mark_fresh(names_of_class(vm, obj))
    kind = type(obj)
    plain = {name: lookup(vm, kind, name) for name in ("__dir__", "__class__", "__dict__")}
    usual = plain["__dir__"] is vars(object)["__dir__"] and plain["__class__"] is vars(object)["__class__"]
    if is_stand_in(obj) or kind is Array or not usual or isinstance(plain["__dict__"], property):
        raise Break(f"dir() of a {python_type(vm, obj).__qualname__}")
    try:
        own = vm.call(list, load_attr(vm, obj, "__dict__"))
    except UserRaised as raised:
        if not isinstance(raised.value, AttributeError):
            raise
        own = []
    if not all(type(name) is str for name in own):
        raise Break("dir() of an object, among whose attributes are others than strings")
    return vm.world.mark_fresh([*{*own, *names_of_class(vm, kind)}])
