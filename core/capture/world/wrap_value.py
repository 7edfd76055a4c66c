"""What a value from outside becomes in the interpreter: a table from its class to what guards and wraps it.

Constants are themselves, tensors and arrays get stand-ins, objects with identity are themselves with a ``Record``.
"""

from __future__ import annotations

import collections
import enum
import re
import types
import weakref
from typing import Any

import numpy as np
import torch

from jitney._util.ownership import trusted
from jitney.capture.builtin_iterators import PROXY, VIEWS, parts, view_of
from jitney.capture.interpreter.code import leaves_traces
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ALIASES, CODE_LIKE, METADATA, SPECIAL_FORMS
from jitney.capture.numpy.dtypes import DTYPE_CLASSES, SCALARS
from jitney.capture.numpy.stand_in import Array, ArrayMethod
from jitney.capture.python import type_slots
from jitney.capture.world.record import CONTENT_TYPES
from jitney.capture.world.world import World, Wrapper
from jitney.guards import Source

VALUE_CLASSES = (int, float, complex, str, bytes)
# Capture looks into objects of these classes by methods in C, which take no others.
BELIEVED = (*CONTENT_TYPES, *VALUE_CLASSES, tuple, range, frozenset, slice, BaseException, torch.Tensor, *CODE_LIKE,
            types.FunctionType, types.MethodType, weakref.ref)  # fmt: skip


def wrapper(kind: type) -> Wrapper:
    """What wraps values of a class."""
    return WRAPPERS.get(kind) or _of_subclass(kind)


def _of_subclass(kind: type) -> Wrapper:
    if issubclass(kind, torch.Tensor):
        return _tensor
    if issubclass(kind, (*CODE_LIKE, *SPECIAL_FORMS)):
        return _code_like
    if issubclass(kind, enum.Enum):
        return _by_identity
    if issubclass(kind, VALUE_CLASSES):
        return _value_of_subclass
    if issubclass(kind, tuple):
        return _tuple
    return _alias if issubclass(kind, ALIASES) else _object


def _tensor(world: World, value: torch.Tensor, source: Source) -> Any:
    return world.tracer.adopt_checked(value, source)


def _by_identity(world: World, value: Any, source: Source) -> Any:
    world.guard(source, "is", value)
    return value


def _by_value(world: World, value: Any, source: Source) -> Any:
    world.guard(source, "equals", value)
    return value


def _number(world: World, value: Any, source: Source) -> Any:
    if world.is_dynamic(source, value):
        world.guard(source, "type", type(value))
        return world.tracer.symbols.scalar(value, source)
    world.guard(source, "equals", value)
    return value


def _code_like(world: World, value: Any, source: Source) -> Any:
    """Classes, builtins, modules, descriptors: guarded by identity, their own root from then on."""
    owner = getattr(value, "__self__", None)
    if isinstance(value, types.BuiltinFunctionType) and not isinstance(owner, types.ModuleType | type | None):
        return _bound_builtin(world, value, source)
    if _trusted_read(world, source):
        _taken_for_granted(world, source, value)
    world.guard(source, "is", value)
    world.anchor(value)
    return value


def _taken_for_granted(world: World, source: Source, value: Any) -> None:
    """Note what is taken for granted in this process."""
    base = source.base
    if base is not None and base.is_const and type(source.key) is str:
        world.assumptions.take(base.key, source.key, value)
    else:
        world.assumptions.keep_private(f"{source.name} is taken as it is")


def _bound_builtin(world: World, value: Any, source: Source) -> Any:
    owner = world.wrap(value.__self__, source.attr("__self__"))
    world.guard(source, "type", type(value))
    world.guard(source.attr("__name__"), "equals", value.__name__)
    if type(owner) is Array:
        return ArrayMethod(owner, value.__name__)
    if owner is not value.__self__:
        value = getattr(owner, value.__name__)
    world.add(value, source)
    return value


def _trusted_read(world: World, source: Source) -> bool:
    base = source.base
    while base is not None and base.kind in ("dict_of",):
        base = base.base
    return base is not None and base.is_const and trusted(base.key)


def _function(world: World, value: types.FunctionType, source: Source) -> Any:
    """By identity where it is somebody's definition; by code where it may be made anew for every call."""
    base = source.base
    while base is not None and base.kind == "dict_of":
        base = base.base
    if base is not None and base.is_const:
        if trusted(base.key):
            _taken_for_granted(world, source, value)
        world.guard(source, "is", value)
        world.anchor(value)
        return value
    found = world.records.get(id(value))
    if found is not None and not found.source.is_const:
        world.relate(found.source, source, True)
        return value
    world.guard(source, "code", value.__code__)
    world.guard(source.attr("__globals__"), "is", value.__globals__)
    if found is None:
        world.add(value, source)
    else:
        world.guard(source, "is", value)
    return value


def _method(world: World, value: types.MethodType, source: Source) -> Any:
    world.guard(source, "type", types.MethodType)
    owner = world.wrap(value.__self__, source.attr("__self__"))
    func = world.wrap(value.__func__, source.attr("__func__"))
    if owner is not value.__self__ or func is not value.__func__:
        value = types.MethodType(func, owner)
    world.add(value, source)
    return value


def _tuple(world: World, value: tuple[Any, ...], source: Source) -> Any:
    if type(value) is tuple and world.constant_key(value) and not _has_changing_float(world, value, source):
        world.guard(source, "equals", value)
        return value
    world.guard(source, "type", type(value))
    own = type(type(value).__len__) is types.FunctionType  # which has no say in what there is to read
    world.guard(source.step("contents", "tuple") if own else source, "len", tuple.__len__(value))
    kind = world.item_kind(value)
    items = [world.wrap(v, source.step(kind, i)) for i, v in enumerate(tuple.__iter__(value))]
    if any(a is not b for a, b in zip(items, tuple.__iter__(value), strict=True)):
        if type(value) is not tuple and not hasattr(value, "_fields") and not hasattr(value, "n_fields"):
            return _opaque(world, value, source)
        value = type(value)(items) if hasattr(value, "n_fields") else tuple.__new__(type(value), items)
    if tuple.__len__(value):  # a class may say otherwise, or nothing
        world.add(value, source)
    return value


def _has_changing_float(world: World, value: tuple[Any, ...], source: Source) -> bool:
    """Is an item of this tuple a float that changes, as Adam's betas do under a schedule? Each float is noted."""
    kind = world.item_kind(value)
    changing = [world.is_dynamic(source.step(kind, i), v) for i, v in enumerate(value) if type(v) is float]
    return any(changing)


def _frozenset(world: World, value: frozenset[Any], source: Source) -> Any:
    if all(world.constant_key(k) for k in value):
        world.guard(source, "type", frozenset)
        world.guard(source, "set", value)
        world.set_orders.adopt(value)
        if value:
            world.add(value, source)
        return value
    return _opaque(world, value, source)


def _view(world: World, value: Any, source: Source) -> Any:
    """A view of a dictionary, or a proxy: one of what capture has of that, in the place of this one."""
    found = world.records.get(id(value))
    made = _object(world, value, source)
    record = world.records[id(value)] if found is None else found
    if record.content is not None:
        return record.content
    owner: Any = next(iter(parts(value)), None)
    if type(owner) not in (dict, collections.OrderedDict):  # a proxy asks the methods of any class
        return made
    inner = world.records.get(id(world.wrap(owner, source.step("parts").item(0))))
    of_class = {"__module__", "__doc__"} <= dict.keys(owner)  # to whose namespace the frame may write otherwise
    if inner is None or of_class or id(owner) in world.viewed:
        return made
    world.viewed.add(id(owner))  # it may hold the view
    try:
        content = world.content(inner)
    except Break:
        return made
    finally:
        world.viewed.remove(id(owner))
    record.content = made = view_of(content, type(value))
    world.add(made, source)
    world.views[id(made)] = made
    return made


def _slice(world: World, value: slice, source: Source) -> Any:
    world.guard(source, "type", slice)
    parts = [world.wrap(getattr(value, n), source.attr(n)) for n in ("start", "stop", "step")]
    return slice(*parts)


def _object(world: World, value: Any, source: Source) -> Any:
    """An object with identity: its class is guarded, its parts when they are looked at."""
    found = world.records.get(id(value))
    if found is not None and found.source is not source:
        world.relate(found.source, source, True)
        return value
    if any(isinstance(vars(c).get("__del__"), types.FunctionType) for c in type(value).__mro__):
        raise Break(
            f"a {type(value).__qualname__} from outside has __del__", "when it is dropped depends on who holds it"
        )
    if type_slots.claims_class(value, BELIEVED) and not hasattr(type(value), "_jitney_is_compiled"):
        raise Break(f"a {type(value).__qualname__} from outside stands for an object of another class")
    getter: Any = type(value).__getattribute__
    if type(getter) is types.FunctionType and leaves_traces(getter.__code__):
        raise Break(
            f"a {type(value).__qualname__}, whose __getattribute__ writes, from outside",
            "capture itself reads attributes, too",
        )
    world.guard(source, "type", type(value))
    world.add(value, source)
    return value


def _alias(world: World, value: Any, source: Source) -> Any:
    """``int | str``, ``list[int]``: what C code and ``typing`` read of it, when it is compared or asked for."""
    made = _object(world, value, source)
    for name in ("__origin__", "__args__"):
        if hasattr(value, name):
            world.wrap(getattr(value, name), source.attr(name))
    return made


def _value_of_subclass(world: World, value: Any, source: Source) -> Any:
    """An object whose value is guarded, as its builtin class sees it, besides its class."""
    base = next(b for b in VALUE_CLASSES if isinstance(value, b))
    if isinstance(value, np.generic) or base is complex:
        raise Break(f"a {type(value).__qualname__}, a subclass of {base.__name__}, from outside")
    made = _object(world, value, source)
    world.guard(source, "true", f"_b.{base.__name__}.__repr__({{v}}) == {base.__repr__(value)!r}")
    return made


def _array(world: World, value: Any, source: Source) -> Any:
    made = world.adopt_array(value, source)
    if made is not None:
        return made
    return _value_of_subclass(world, value, source) if isinstance(value, float) else _object(world, value, source)


def _opaque(world: World, value: Any, source: Source) -> Any:
    world.guard(source, "is", value)
    world.add(value, source)
    return value


WRAPPERS: dict[type, Wrapper] = {
    **dict.fromkeys((type(None), bool, type(Ellipsis), type(NotImplemented), *METADATA), _by_identity),
    **dict.fromkeys((str, bytes, complex, torch.device, torch.Size, range, *DTYPE_CLASSES), _by_value),
    **dict.fromkeys((int, float), _number),
    **dict.fromkeys((*CODE_LIKE, np.ufunc, type(np.sum)), _code_like),
    types.FunctionType: _function,
    types.MethodType: _method,
    **dict.fromkeys((types.CellType, weakref.ref), _object),
    re.Pattern: _opaque,
    tuple: _tuple,
    frozenset: _frozenset,
    slice: _slice,
    **dict.fromkeys((*VIEWS, PROXY), _view),
    **dict.fromkeys((torch.Tensor, torch.nn.Parameter), _tensor),
    **dict.fromkeys((np.ndarray, *SCALARS), _array),
}
