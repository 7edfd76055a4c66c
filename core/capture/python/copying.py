"""copy.copy and copy.deepcopy of plain objects, by the protocol of the ``copy`` module.

Interpreting that module's own code would need ``id()`` of objects that exist only while capturing.
"""

from __future__ import annotations

import copy
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import HEAP
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ATOMS, is_stand_in
from jitney.capture.metadata import storage
from jitney.capture.python import attributes
from jitney.capture.python.attributes import PYTHON_FUNCTION, lookup
from jitney.capture.tables import FunctionTable
from jitney.capture.torch.stand_in_attributes import python_type
from jitney.capture.torch.symbols import SYMBOLIC
from jitney.capture.world.record import CONTENT_TYPES

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

SHARED = (
    *ATOMS, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, torch.dtype, torch.device, range,
    torch.layout, torch.memory_format, torch.Size, property,
)  # fmt: skip

UNCOPIED = (slice, tuple, frozenset, weakref.ref)  # their copies are deep ones only


@special(copy.copy)
def _copy(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    value = args[0]
    if isinstance(value, SHARED) or type(value) in SYMBOLIC or type(value) in UNCOPIED:
        return value
    if type(value) is set:
        return vm.call(set.copy, value)
    method = lookup(vm, type(value), "__copy__")
    if type(method) is PYTHON_FUNCTION:
        return vm.call(method, value)
    return _rebuilt(vm, value, lambda part: part, {})


@special(copy.deepcopy)
def _deepcopy(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if len(args) > 1 or kwargs:
        raise Break("copy.deepcopy() with a memo")
    return _deep(vm, args[0], {})


def _deep(vm: Interpreter, value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, SHARED) or type(value) in SYMBOLIC:
        return value
    if id(value) in memo:
        return memo[id(value)][1]
    if isinstance(value, torch.Tensor):
        return _deep_tensor(vm, value, memo)
    if type(lookup(vm, type(value), "__deepcopy__")) is PYTHON_FUNCTION:
        raise Break(f"copy.deepcopy() of a {type(value).__qualname__}, which has its own __deepcopy__")
    if type(value) is tuple:
        made = tuple(_deep(vm, v, memo) for v in value)
        result = value if all(a is b for a, b in zip(made, value, strict=True)) else made
        memo[id(value)] = (value, result)
        return result
    return _rebuilt(vm, value, lambda part: _deep(vm, part, memo), memo)


def _deep_tensor(vm: Interpreter, value: Any, memo: dict[int, Any]) -> Any:
    """A clone, where nothing but numbers is copied. Two tensors from outside may share memory at another call."""
    real = vm.tracer.real_of(value)
    plain = is_stand_in(value) and python_type(vm, value) is torch.Tensor and (real is value or not vars(real))
    if not plain or value.requires_grad or not value.is_contiguous():
        raise Break("copy.deepcopy() of a tensor that is more than numbers in order", "use clone()")
    source = vm.tracer.source_of(value)
    if source is not None:
        vm.world.guard(source, "true", "not _b.vars({v})")
    memories = [storage(v) for v, _ in memo.values() if is_stand_in(v)] + [storage(value)]
    outside = set(map(storage, vm.tracer.outside()))
    if len(set(memories)) < len(memories) or len(outside.intersection(memories)) > 1:
        raise Break("copy.deepcopy() of tensors that may share memory", "use clone()")
    made = vm.native(torch.Tensor.clone, value)
    if source is None and vars(value).keys() - vars(made).keys():
        raise Break("copy.deepcopy() of a tensor with attributes of its own", "use clone()")
    memo[id(value)] = (value, made)
    return made


def _rebuilt(vm: Interpreter, value: Any, each: Any, memo: dict[int, Any]) -> Any:
    """A copy of a container or plain instance with ``each`` applied to its parts."""
    kind = type(value)
    for name in ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs_ex__", "__getnewargs__"):
        entry = lookup(vm, kind, name)
        if type(entry) is PYTHON_FUNCTION:
            raise Break(f"a copy of a {kind.__qualname__}, which has its own {name}")
    base: Any = next((b for b in kind.__mro__ if b in CONTENT_TYPES or b.__module__ == "collections"), object)
    if not isinstance(value, CONTENT_TYPES) and (kind.__flags__ & HEAP) == 0:
        raise Break(f"a copy of a {kind.__qualname__}")
    try:
        made = vm.world.mark_fresh(base.__new__(kind) if isinstance(value, CONTENT_TYPES) else object.__new__(kind))
    except TypeError:  # "is not safe": functools.partial, numbers, exceptions
        raise Break(f"a copy of a {kind.__qualname__}, which C code makes") from None
    memo[id(value)] = (value, made)
    if isinstance(value, CONTENT_TYPES):
        _copy_content(vm, value, made, each)
    if kind.__dictoffset__:
        namespace = attributes.load_attr(vm, value, "__dict__")
        record = vm.world.record_of(namespace)
        items = vm.world.dict_content(record) if record is not None else namespace
        for key, part in dict(items).items():
            made.__dict__[key] = each(part)
    for cls in kind.__mro__:
        for member in vars(cls).values():
            if isinstance(member, types.MemberDescriptorType) and cls.__flags__ & HEAP:
                raise Break(f"a copy of a {kind.__qualname__}, which has __slots__")
    return made


def _copy_content(vm: Interpreter, value: Any, made: Any, each: Any) -> None:
    record = vm.world.record_of(value)
    content = vm.world.content(record) if record is not None else value
    if isinstance(value, dict):
        if hasattr(value, "default_factory"):
            made.default_factory = value.default_factory
        base: Any = dict if not hasattr(value, "move_to_end") else type(content)
        for key, part in list(content.items()):
            base.__setitem__(made, each(key), each(part))
    elif isinstance(value, set):
        vm.world.read_order(content)
        set.update(made, map(each, content))
    else:
        for part in list(content):
            made.append(each(part))
