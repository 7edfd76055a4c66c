"""copy.copy and copy.deepcopy of plain objects, by the protocol of the ``copy`` module.

Interpreting that module's own code would need ``id()`` of objects that exist only while capturing.
"""

from __future__ import annotations

import copy
import copyreg
import enum
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import HEAP
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.kinds import ATOMS, is_stand_in
from jitney.capture.metadata import storage
from jitney.capture.python import attributes
from jitney.capture.python.classes import PYTHON_FUNCTION, lookup
from jitney.capture.tables import FunctionTable
from jitney.capture.torch.stand_in_attributes import python_type
from jitney.capture.torch.symbols import SYMBOLIC
from jitney.capture.world.record import ABSENT, CONTENT_TYPES
from jitney.guards.host_tensors import OwnMemories
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

SHARED = (
    *ATOMS, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, torch.dtype, torch.device, range,
    torch.layout, torch.memory_format, torch.Size, property,
)  # fmt: skip

VALUES = (int, float, complex, str, bytes)  # whose subclasses have copies of their own

# Methods of enumerations that give the member itself.
OWN_COPIES = {getattr(enum.Enum, name, None) for name in ("__copy__", "__deepcopy__")} - {None}
UNCOPIED = (slice, tuple, frozenset, weakref.ref)  # their copies are deep ones only


class Memo(dict[int, Any]):
    """What ``__deepcopy__`` of the program's is given. ``copies``: by identity, what was copied and its copy."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[int, Any] = {}


@special(copy.copy)
def _copy(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    value = args[0]
    if _is_shared(value) or type(value) in UNCOPIED:
        return value
    if type(value) is set:
        return vm.call(set.copy, value)
    method = lookup(vm, type(value), "__copy__")
    if method in OWN_COPIES:
        return value
    if type(method) is PYTHON_FUNCTION:
        return vm.call(method, value)
    return _rebuilt(vm, value, lambda part: part, {})


def _ask(vm: Interpreter, value: Any, name: str) -> None:
    """Ask a ``__getattribute__`` or ``__getattr__`` of the program's for a method of the protocol, as ``copy`` does."""
    own = lookup(vm, type(value), name)
    getters = ["__getattribute__"] if own is not ABSENT else ["__getattribute__", "__getattr__"]
    if all(type(lookup(vm, type(value), getter)) is not PYTHON_FUNCTION for getter in getters):
        return
    try:
        found = attributes.load_attr(vm, value, name)
    except UserRaised as raised:
        if not issubclass(type(raised.value), AttributeError):
            raise
        found = ABSENT
    if (found is ABSENT) is not (own is ABSENT) or (own is not ABSENT and not _is_method(found, value, name)):
        raise Break(f"a copy of a {type(value).__qualname__}, whose {name} is not its class's")


def _is_method(found: Any, value: Any, name: str) -> bool:
    """Is this what an object of which it is asked has by this name, by its class?"""
    return getattr(found, "__self__", None) is value and getattr(found, "__name__", "") == name


@special(copy.deepcopy)
def _deepcopy(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    given = dict(zip(("x", "memo"), args, strict=False)) | kwargs
    memo = given.get("memo")
    if len(args) > 2 or given.keys() - {"x", "memo"} or not (memo is None or type(memo) is Memo):
        raise Break("copy.deepcopy() with a memo of the program's")
    if type(memo) is Memo:
        return _deep(vm, given["x"], memo)
    memo = vm.world.mark_fresh(Memo())
    made = _deep(vm, given["x"], memo)
    _check_memories(vm, memo)
    return made


def _is_shared(value: Any) -> bool:
    """Is it its own copy, shallow or deep?"""
    kind = type(value)  # isinstance() would ask the object for its class
    own = issubclass(kind, VALUES) and kind.__flags__ & HEAP
    return kind in SYMBOLIC or (issubclass(kind, SHARED) and not own)


def _deep(vm: Interpreter, value: Any, memo: Memo) -> Any:
    if _is_shared(value):
        return value
    if id(value) in memo.copies:
        return memo.copies[id(value)][1]
    if id(value) in memo:  # what the program itself has put there
        return memo[id(value)]
    if issubclass(type(value), torch.Tensor):
        return _deep_tensor(vm, value, memo.copies)
    _ask(vm, value, "__deepcopy__")
    method = lookup(vm, type(value), "__deepcopy__")
    if method in OWN_COPIES:
        return value
    if type(method) is PYTHON_FUNCTION:
        made = vm.call(method, value, memo)
        memo.copies[id(value)] = (value, made)
        return made
    if type(value) is tuple:
        made = tuple(_deep(vm, v, memo) for v in value)
        result = value if all(a is b for a, b in zip(made, value, strict=True)) else made
        memo.copies[id(value)] = (value, result)
        return result
    return _rebuilt(vm, value, lambda part: _deep(vm, part, memo), memo.copies)


def _check_memories(vm: Interpreter, memo: Memo) -> None:
    """Guard that no two of the tensors that are copied are views of one memory, whose copies would be so, too."""
    tensors = [v for v, _ in memo.copies.values() if is_stand_in(v)]
    copied = [v for v in tensors if python_type(vm, v) is not torch.nn.Parameter]  # each of those is cloned
    memories = set(map(storage, copied))
    found = [vm.tracer.adopted[id(fake)] for fake in vm.tracer.outside() if storage(fake) in memories]
    own = OwnMemories()
    with torch_private.without_modes():
        if len(memories) < len(copied) or not own(*(real for real, _ in found)):
            raise Break("copy.deepcopy() of tensors that share memory", "use clone()")
    if len(found) > 1:
        for _, source in found:
            source.wanted = True
        vm.world.comparisons.append((own, tuple(source for _, source in found), True))


def _deep_tensor(vm: Interpreter, value: Any, memo: dict[int, Any]) -> Any:
    """A clone, where nothing but numbers is copied."""
    if is_stand_in(value) and python_type(vm, value) is torch.nn.Parameter:
        data = vm.native(torch.Tensor.clone, vm.native(torch.Tensor.detach, value))
        made = vm.call(torch.nn.Parameter, data, value.requires_grad)
        memo[id(value)] = (value, made)
        return made
    real = vm.tracer.real_of(value)
    plain = is_stand_in(value) and python_type(vm, value) is torch.Tensor and (real is value or not vars(real))
    if not plain or value.requires_grad or not value.is_contiguous():
        raise Break("copy.deepcopy() of a tensor that is more than numbers in order", "use clone()")
    source = vm.tracer.source_of(value)
    if source is not None:
        vm.world.guard(source, "true", "not _b.vars({v})")
    made = vm.native(torch.Tensor.clone, value)
    if source is None and vars(value).keys() - vars(made).keys():
        raise Break("copy.deepcopy() of a tensor with attributes of its own", "use clone()")
    memo[id(value)] = (value, made)
    return made


def _rebuilt(vm: Interpreter, value: Any, each: Any, memo: dict[int, Any]) -> Any:
    """A copy of a container or plain instance with ``each`` applied to its parts."""
    kind = type(value)
    for name in ("__reduce_ex__", "__reduce__", "__getnewargs_ex__", "__getnewargs__"):
        if type(lookup(vm, kind, name)) is PYTHON_FUNCTION:
            raise Break(f"a copy of a {kind.__qualname__}, which has its own {name}")
    table = copyreg.dispatch_table
    vm.world.guard(vm.world.const(table), "has" if kind in table else "lacks", kind)
    if kind in table:
        raise Break(f"a copy of a {kind.__qualname__}, for which the program has registered a function")
    base: Any = next((b for b in kind.__mro__ if b in CONTENT_TYPES or b.__module__ == "collections"), object)
    for name in ("__reduce_ex__", "__reduce__", "__getstate__"):
        _ask(vm, value, name)
    has_content = issubclass(kind, CONTENT_TYPES)
    if not has_content and (kind.__flags__ & HEAP) == 0:
        raise Break(f"a copy of a {kind.__qualname__}")
    of_value: Any = next((b for b in VALUES if issubclass(kind, b)), None)
    given = () if of_value is None else (of_value(value),)
    new = lookup(vm, kind, "__new__")
    new = new.__func__ if type(new) is staticmethod else new
    if type(new) is PYTHON_FUNCTION:
        made = vm.call(new, kind, *given)
    else:
        maker = of_value or (base if has_content else object)
        try:
            made = vm.world.mark_fresh(maker.__new__(kind, *given))
        except TypeError:  # "is not safe": functools.partial, numbers, exceptions
            raise Break(f"a copy of a {kind.__qualname__}, which C code makes") from None
    memo[id(value)] = (value, made)
    _copy_state(vm, value, made, each)
    if has_content:
        _copy_content(vm, value, made, each)
    for cls in kind.__mro__:
        for member in vars(cls).values():
            if isinstance(member, types.MemberDescriptorType) and cls.__flags__ & HEAP:
                raise Break(f"a copy of a {kind.__qualname__}, which has __slots__")
    return made


def _copy_state(vm: Interpreter, value: Any, made: Any, each: Any) -> None:
    """What ``__getstate__`` gives, or the instance's attributes, for ``__setstate__``, or as attributes."""
    kind = type(value)
    getter, setter = lookup(vm, kind, "__getstate__"), lookup(vm, kind, "__setstate__")
    if type(getter) is PYTHON_FUNCTION:
        state = vm.call(getter, value)
    else:
        state = attributes.load_attr(vm, value, "__dict__") if kind.__dictoffset__ else None
        state = state if state is not None and vm.truth(state) else None
    if state is None:
        return
    state = each(state)
    _ask(vm, made, "__setstate__")
    if type(setter) is PYTHON_FUNCTION:
        vm.call(setter, made, state)
    elif setter is not ABSENT or type(state) is not dict or not kind.__dictoffset__:
        raise Break(f"a copy of a {kind.__qualname__}, whose state is a {type(state).__qualname__}")
    else:
        record = vm.world.record_of(state)
        storage_of_made = object.__getattribute__(made, "__dict__")
        if type(lookup(vm, kind, "__getattribute__")) is PYTHON_FUNCTION:
            if attributes.load_attr(vm, made, "__dict__") is not storage_of_made:
                raise Break(f"a copy of a {kind.__qualname__}, whose __dict__ is not its own")
        storage_of_made.update(state if record is None else vm.world.dict_content(record))


def _copy_content(vm: Interpreter, value: Any, made: Any, each: Any) -> None:
    record = vm.world.record_of(value)
    content = vm.world.content(record) if record is not None else value
    if issubclass(type(value), dict):
        if hasattr(value, "default_factory"):
            made.default_factory = value.default_factory
        base: Any = dict if not hasattr(value, "move_to_end") else type(content)
        for key, part in list(content.items()):
            base.__setitem__(made, each(key), each(part))
    elif issubclass(type(value), set):
        vm.world.read_order(content)
        set.update(made, map(each, content))
    else:
        for part in list(content):
            made.append(each(part))
