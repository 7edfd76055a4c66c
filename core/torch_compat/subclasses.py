"""Tensor subclasses that wrap tensors: how one is taken apart, compared, and made again.

Such a class computes in ``__torch_dispatch__``. Its ``__tensor_flatten__`` names its inner tensors and gives a context,
its ``__tensor_unflatten__`` makes an equal tensor of both. An attribute so named that is no tensor is context.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney.torch_compat import torch_private

ATOMS = (int, float, bool, str, bytes, complex, type(None), type(Ellipsis))
FIXED = (
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, type, types.FunctionType,
    types.BuiltinFunctionType, types.ModuleType, enum.Enum,
)  # fmt: skip


class NotComparable(ValueError):
    """A context of which nobody can tell later whether it is still the same."""


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What one tensor of such a class is, besides its inner tensors.

    Args:
        cls: its class.
        names: the attributes that hold inner tensors.
        fixed: other attributes that ``__tensor_flatten__`` names, with their values.
        context: what else ``__tensor_flatten__`` gives; no tensor in it, and nothing that can change.
    """

    cls: type
    names: tuple[str, ...]
    fixed: tuple[tuple[str, Any], ...]
    context: Any

    def inner(self, value: Any) -> list[Any]:
        """The inner tensors of a tensor that is taken apart so."""
        return [getattr(value, name) for name in self.names]

    def make(self, inner: Sequence[Any], size: Any, stride: Any) -> Any:
        """A tensor of the class around these inner tensors."""
        parts = {**dict(zip(self.names, inner, strict=True)), **dict(self.fixed)}
        cls: Any = self.cls
        return cls.__tensor_unflatten__(parts, self.context, size, stride)

    def holds(self, value: Any) -> bool:
        """Is ``value`` of this class, with the same names and an equal context?"""
        if type(value) is not self.cls:
            return False
        tensor: Any = value
        names, context = tensor.__tensor_flatten__()
        found = tuple(n for n in names if isinstance(getattr(value, n), torch.Tensor))
        if found != self.names or len(names) != len(self.names) + len(self.fixed):
            return False
        return all(equal(getattr(value, n), v) for n, v in self.fixed) and equal(context, self.context)


def wraps(cls: type) -> bool:
    """Is it a tensor class that can be taken apart and made again?"""
    kind: Any = cls
    if not issubclass(cls, torch.Tensor) or not hasattr(cls, "__tensor_flatten__"):
        return False
    return hasattr(cls, "__tensor_unflatten__") and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def take_apart(value: Any) -> Wrapping:
    """What a tensor of such a class is; raises ``NotComparable``."""
    names, context = value.__tensor_flatten__()
    tensors = tuple(n for n in names if isinstance(getattr(value, n), torch.Tensor))
    fixed = tuple((n, snapshot(getattr(value, n))) for n in names if n not in tensors)
    return Wrapping(type(value), tensors, fixed, snapshot(context))


def leaves(value: Any) -> list[Any]:
    """The innermost tensors of a tensor; those of subclasses that wrap subclasses, too."""
    if not wraps(type(value)):
        return [value]
    names, _ = value.__tensor_flatten__()
    found = (getattr(value, n) for n in names)
    return [leaf for inner in found if isinstance(inner, torch.Tensor) for leaf in leaves(inner)]


def snapshot(value: Any) -> Any:
    """The value, such that changing it later changes the snapshot no more; raises ``NotComparable``."""
    kind = type(value)
    if kind in ATOMS or isinstance(value, FIXED):
        return value
    if kind in (tuple, list):
        return kind(map(snapshot, value))
    if kind is dict:
        return {snapshot(k): snapshot(v) for k, v in value.items()}
    if isinstance(value, tuple) and all(snapshot(v) is v for v in tuple.__iter__(value)):
        return value
    comparable = getattr(kind, "__eq__") is not object.__eq__ and kind.__hash__ is not None  # noqa: B009 (for mypy)
    if isinstance(value, (torch.Tensor, list, dict, set)) or not comparable:
        raise NotComparable(f"a {kind.__qualname__}")
    return value


def equal(a: Any, b: Any) -> bool:
    """Equal, and of the same class all the way down: 1, True and 1.0 differ, so do 0.0 and -0.0."""
    kind = type(a)
    if kind is not type(b):
        return False
    if kind in (float, complex):
        return repr(a) == repr(b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(equal, a, b))
    if kind is dict:
        return [*a] == [*b] and all(map(equal, a, b)) and all(equal(v, b[k]) for k, v in a.items())
    return a is b or bool(a == b)


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """An equal tensor around ``change(leaf)`` for each innermost tensor; ``change(value)`` for a plain one."""
    if not wraps(type(value)):
        return change(value)
    wrapping = take_apart(value)
    inner = [rebuilt(part, change) for part in wrapping.inner(value)]
    return wrapping.make(inner, value.size(), value.stride())


def attributes(value: Any) -> Mapping[str, Any]:
    """What a tensor holds besides what every tensor has: its ``__dict__``, and slots of its own classes."""
    found = dict(object.__getattribute__(value, "__dict__"))
    for cls in own_classes(type(value)):
        for name, member in vars(cls).items():
            if isinstance(member, types.MemberDescriptorType) and hasattr(value, name):
                found[name] = member.__get__(value)
    return found


def own_classes(cls: type) -> list[type]:
    """The classes of a tensor class that are not torch.Tensor's own."""
    return [c for c in cls.__mro__ if c not in torch.Tensor.__mro__]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as the graph gets it."""
    with torch_private.DisableTorchFunctionSubclass(), torch.enable_grad():
        return tensor.as_subclass(torch.Tensor)


def of_class(tensor: torch.Tensor, cls: Any) -> Any:
    """A result of the graph as the program gets it."""
    with torch_private.DisableTorchFunctionSubclass(), torch.enable_grad():
        return tensor.as_subclass(cls)
