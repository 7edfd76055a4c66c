"""Tensor subclasses that wrap tensors: which of them capture understands, and what it guards of one.

Their stand-ins are of the subclass itself, around stand-ins for the inner tensors; ``__torch_dispatch__`` runs on them.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch

from jitney._util.ownership import trusted
from jitney.capture.interpreter.code import EFFECTFUL, decode
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ATOMS, METADATA
from jitney.capture.world.guard_set import GuardSet
from jitney.guards import Source
from jitney.torch_compat import subclasses, torch_private
from jitney.torch_compat.subclasses import NotComparable, Wrapping

HINT = "use plain tensors in compiled code, or mark the function with jitney.disable"
# Special methods that operations on a tensor do not call, and those of the protocol.
HARMLESS = frozenset(
    (
        "__new__ __init__ __repr__ __str__ __doc__ __module__ __slots__ __dict__ __weakref__ __annotations__ "
        "__qualname__ __slotnames__ __match_args__ __firstlineno__ __static_attributes__ __orig_bases__ __parameters__ "
        "__annotate__ __annotate_func__ __annotations_cache__ __abstractmethods__ __init_subclass__ __reduce__ "
        "__reduce_ex__ __setstate__ __getstate__ __deepcopy__ __torch_dispatch__ __torch_function__ __tensor_flatten__ "
        "__tensor_unflatten__ __metadata_guard__ __coerce_tangent_metadata__ __coerce_same_metadata_as_tangent__ "
        "__create_write_items__ __get_tensor_shard__ __create_chunk_list__"
    ).split()
)
# What marks the sizes of a tensor that are to be symbolic, or not.
MARKS = ("_jitney_", "_dynamo_")
# Classes of torch whose tensors change by being looked at.
REFUSED_MODULES = ("torch.distributed._functional_collectives", "torch.nested", "torch._subclasses", "torch._functorch")


_refusals: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


def refusal(cls: type) -> str:
    """Why tensors of this class are not captured; empty if they are."""
    if cls not in _refusals:
        _refusals[cls] = _refusal(cls)
    return _refusals[cls]


def _refusal(cls: type) -> str:
    kind: Any = cls
    if not subclasses.wraps(cls) or cls.__module__.startswith(REFUSED_MODULES):
        return f"a tensor of class {cls.__qualname__} is not captured"
    if type(cls) is not type(torch.Tensor):
        return f"a tensor of class {cls.__qualname__}, which has a metaclass of its own"
    function = kind.__torch_function__
    inherited = getattr(function, "__func__", None) is torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
    if not inherited and function is not torch_private.disabled_torch_function:
        return f"a tensor of class {cls.__qualname__}, which has its own __torch_function__"
    for owner in subclasses.own_classes(cls):
        if trusted(owner):
            continue
        special = [n for n in vars(owner) if n.startswith("__") and n.endswith("__") and n not in HARMLESS]
        if special:
            return f"a tensor of class {cls.__qualname__}, which has its own {special[0]}"
        dispatch = getattr(vars(owner).get("__torch_dispatch__"), "__func__", None)
        if dispatch is not None and _leaves_traces(dispatch):
            return f"a tensor of class {cls.__qualname__}, whose __torch_dispatch__ writes"
    return ""


STORES = ("STORE_GLOBAL", "STORE_SUBSCR", "STORE_ATTR", "DELETE_GLOBAL")


def _leaves_traces(function: Any) -> bool:
    """May a method, or a function inside it, write to what is older than its call? A look at its code, no proof."""
    if type(function) is not types.FunctionType:
        return True
    todo = [function.__code__]
    while todo:
        code = todo.pop()
        instrs = decode(code).instrs
        shared = any(i.op == "STORE_DEREF" and i.argval in function.__code__.co_freevars for i in instrs)
        if shared or EFFECTFUL.intersection(code.co_names) or any(i.op in STORES for i in instrs):
            return True
        todo += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return False


def take_apart(real: Any) -> Wrapping:
    """What a tensor from outside, of a subclass, is made of. Breaks if no guard could tell that it is still so."""
    cls = type(real)
    reason = refusal(cls)
    if reason:
        raise Break(reason, HINT)
    try:
        found = subclasses.take_apart(real)
    except NotComparable as what:
        raise Break(f"the context of a {cls.__qualname__}, {what}, cannot be compared with a later one", HINT) from None
    if not found.names:
        raise Break(f"a {cls.__qualname__} without inner tensors", HINT)
    return found


def guard(guards: GuardSet, source: Source, real: Any, parts: Wrapping, fake: Any) -> None:
    """Guard what a tensor of a subclass is, besides what is guarded of its inner tensors and of every tensor."""
    cls = type(real)
    guards.guard(source, "wraps", parts)
    for owner in subclasses.own_classes(cls):
        for name in ("__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__"):
            if name in vars(owner) and not trusted(owner):
                guards.guard(guards.const(owner).step("class_dict", name), "is", vars(owner)[name])
    guards.guard(source.step("dict_of"), "keys", [*object.__getattribute__(real, "__dict__")])
    known = {id(v) for v in _parts((parts.context, parts.fixed))}
    again = subclasses.attributes(fake)
    for name, value in subclasses.attributes(real).items():
        if name in parts.names or id(value) in known or name.startswith(MARKS):
            continue
        if type(value) in (*ATOMS, *METADATA, torch.device, torch.Size):
            guards.guard(source.step("static_attr", name), "equals", value)
        elif name not in again or not subclasses.equal(again[name], value):
            raise Break(f"{cls.__qualname__}.{name} is not in the context that its __tensor_flatten__ gives", HINT)


def _parts(value: Any) -> list[Any]:
    """A context and everything in it."""
    inside = [*value, *value.values()] if type(value) is dict else value if isinstance(value, (tuple, list)) else ()
    return [value, *(part for item in inside for part in _parts(item))]


def check_made(fake: Any, real: Any) -> None:
    """Break unless ``__tensor_unflatten__`` has made a tensor like the one that was taken apart."""
    cls = type(real)
    same = type(fake) is cls and fake.dtype == real.dtype and fake.device == real.device and fake.dim() == real.dim()
    if not same or fake.layout != real.layout or not all(map(is_known, subclasses.leaves(fake))):
        raise Break(f"the __tensor_unflatten__ of {cls.__qualname__} makes another tensor", HINT)


def check_result(result: Any) -> None:
    """Break at a result of a class that capture does not know, or one that is not around stand-ins."""
    cls = type(result)
    reason = refusal(cls)
    try:
        known = not reason and all(map(is_known, subclasses.leaves(result)))
    except (
        AttributeError
    ):  # ``as_subclass``, which torch's own __torch_function__ calls, makes it without inner tensors
        known = False
    if not known:
        raise Break(reason or f"a {cls.__qualname__} whose inner tensors are not known", HINT)


def is_known(leaf: Any) -> bool:
    """Is an innermost tensor a stand-in?"""
    return isinstance(leaf, torch_private.FakeTensor)


def refuse_attribute(tensor: Any, name: str) -> None:
    """Break at what the subclass has made itself: its attributes, methods and overrides."""
    kind = type(tensor)
    if any(name in vars(owner) for owner in subclasses.own_classes(kind)) or name in subclasses.attributes(tensor):
        raise Break(f"{kind.__qualname__}.{name} is the subclass's own", "read or call it outside compiled code")


def may_vary(cls: type) -> bool:
    """May sizes of its tensors be symbolic? DTensor caches by numbers what it finds out about sizes."""
    return not cls.__module__.startswith("torch.distributed")
