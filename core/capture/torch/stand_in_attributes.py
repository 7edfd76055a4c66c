"""Attributes of what stands for something else in capture: tensors, symbolic numbers, generators."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter.generators import InterpretedGenerator
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import STAND_INS
from jitney.capture.numpy.stand_in import Array
from jitney.capture.torch import wrapper_subclasses
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

SYMBOLIC: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def python_type(vm: Interpreter, obj: Any) -> type:
    """``type(obj)`` as the user would see it in eager."""
    kind = type(obj)
    if kind in STAND_INS:
        real = vm.tracer.real_of(obj)
        if real is not obj:
            return type(real)
        if kind is not torch_private.FakeTensor:
            return kind
        return torch.nn.Parameter if isinstance(obj, torch.nn.Parameter) else torch.Tensor
    if kind is InterpretedGenerator:
        return types.GeneratorType
    if kind is Array:
        return obj.kind
    return SYMBOLIC.get(kind, kind)


TENSOR_SPECIAL = {
    "_is_view",
    "grad_fn",
    "_version",
    "_backward_hooks",
    "_post_accumulate_grad_hooks",
    "_base",
    "_cdata",
    "_has_symbolic_sizes_strides",
    "_python_dispatch",
}


def tensor_attr(vm: Interpreter, tensor: Any, name: str) -> Any:
    """An attribute of a stand-in for a tensor: metadata, gradients, what the user has set on it."""
    if name == "__class__":
        return python_type(vm, tensor)
    if name == "grad_fn" and vm.truth(tensor_attr(vm, tensor, "is_leaf")):
        return None
    if name in TENSOR_SPECIAL:
        raise Break(f"Tensor.{name} belongs to autograd's own bookkeeping", "read it outside compiled code")
    if type(tensor) is not torch_private.FakeTensor:
        wrapper_subclasses.refuse_attribute(tensor, name)
    source = vm.tracer.source_of(tensor)
    if source is not None:
        real = vm.tracer.real_of(tensor)
        if name == "grad":
            written = vm.world.record_of(real)
            if written is not None and "grad" in written.slots:
                return written.slots["grad"]
            with torch_private.without_modes():
                value = real.grad
            return vm.world.wrap(value, source.attr("grad"))
        with torch_private.without_modes():
            storage = getattr(real, "__dict__", {})
            present = name in storage
        if present:
            return vm.world.wrap(storage[name], source.attr(name))
        if name == "__dict__":
            raise Break("Tensor.__dict__ is read")
        if not hasattr(torch.Tensor, name):
            vm.world.guard(source, "lacks_attr", name)
            kind = type(real).__name__
            return vm.raise_user(AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=tensor))
    elif name == "grad":
        return None
    elif not hasattr(torch.Tensor, name):
        kind = python_type(vm, tensor).__name__
        return vm.raise_user(AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=tensor))
    vm.world.guard_method(name)
    if name in vars(torch_private.FakeTensor) and name != "device":
        found = getattr(torch.Tensor, name)
        return found.__get__(tensor, type(tensor))
    return vm.native(getattr, tensor, name)


def store_tensor_attr(vm: Interpreter, tensor: Any, name: str, value: Any) -> None:
    """``tensor.name = value``: a gradient may be dropped; it waits, like other writes, until the graph has run."""
    source = vm.tracer.source_of(tensor)
    if name == "requires_grad" and source is None and type(value) is bool:
        vm.native(tensor.requires_grad_, value)
        return
    if name != "grad" or value is not None or source is None:
        raise Break(f"assignment to Tensor.{name}", "change the tensor outside compiled code")
    record = vm.world.add(vm.tracer.real_of(tensor), source)
    record.slots["grad"] = None
    record.dirty = True


def stand_in_attr(vm: Interpreter, obj: Any, name: str) -> Any:
    """An attribute of a symbolic number (of the plain number, but for what is that itself) or of a generator."""
    kind = type(obj)
    if name == "__class__":
        return python_type(vm, obj)
    if kind is InterpretedGenerator:
        if name not in ("send", "throw", "close", "__next__", "__iter__"):
            raise Break(f"{name} of a generator")
        return vm.native(getattr, obj, name)
    if name == "real" and kind is not torch.SymBool:
        return obj
    return vm.native(getattr, SYMBOLIC[kind](obj), name)
