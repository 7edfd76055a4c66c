"""Attributes of what stands for something else in capture: tensors, symbolic numbers, generators."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture import metadata
from jitney.capture.interpreter.generators import InterpretedGenerator
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import STAND_INS, is_stand_in
from jitney.capture.numpy.stand_in import Array
from jitney.capture.torch.classes import wrappers
from jitney.capture.world.record import ABSENT
from jitney.guards.tensor_attributes import attributes
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
        if id(obj) in vm.tracer.rules.classes:
            return vm.tracer.rules.classes[id(obj)]
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
    if name in ("grad", "grad_fn") and vm.tracer.rules.is_watched(tensor):
        raise Break(f"Tensor.{name} where __torch_function__ of the program's sees it", "read it outside compiled code")
    if name == "device" and vm.tracer.rules.is_watched(tensor):
        return vm.tracer.rules.ask(vm.tracer, torch.Tensor.device.__get__, tensor)
    if name == "grad_fn" and vm.truth(tensor_attr(vm, tensor, "is_leaf")):
        return None
    if name in TENSOR_SPECIAL:
        raise Break(f"Tensor.{name} belongs to autograd's own bookkeeping", "read it outside compiled code")
    if type(tensor) is not torch_private.FakeTensor:
        wrappers.refuse_attribute(tensor, name)
    source = vm.tracer.source_of(tensor)
    if source is not None:
        real = vm.tracer.real_of(tensor)
        written = vm.world.record_of(real)
        if written is not None and name in written.slots:
            return written.slots[name]
        if name == "grad":
            with torch_private.without_modes():
                value = real.grad
            return vm.world.wrap(value, source.attr("grad"))
        value = tensor_entry(vm, tensor, name)
        if value is not ABSENT:
            return value
        if name == "__dict__":
            raise Break("Tensor.__dict__ is read")
        if not hasattr(torch.Tensor, name):
            vm.world.guard(source, "lacks_attr", name)
            kind = type(real).__name__
            return vm.raise_user(AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=tensor))
    elif name in vm.tracer.attributes.get(id(tensor), ()):
        return vm.tracer.attributes[id(tensor)][name]
    elif name == "grad":
        return vm.tracer.tape.gradients.get(id(tensor))
    elif not hasattr(torch.Tensor, name):
        kind = python_type(vm, tensor).__name__
        return vm.raise_user(AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=tensor))
    vm.world.guard_method(name)
    cls = python_type(vm, tensor)
    own = cls is not torch.Tensor and name in vars(cls) and type(tensor) is torch_private.FakeTensor
    if own and metadata.OUTSIDE.get(name):
        raise Break(f"{cls.__qualname__}.{name}() {metadata.OUTSIDE[name]}", "move it out of the compiled function")
    if own or (name in vars(torch_private.FakeTensor) and name != "device"):
        found = getattr(cls, name) if not own else vars(cls)[name]
        return found.__get__(tensor, type(tensor)) if hasattr(type(found), "__get__") else found
    return vm.native(getattr, tensor, name)


def tensor_entry(vm: Interpreter, tensor: Any, name: str) -> Any:
    """What the user has set on a tensor itself, or ``ABSENT``."""
    source = vm.tracer.source_of(tensor)
    if source is None:
        return vm.tracer.attributes.get(id(tensor), {}).get(name, ABSENT)
    real = vm.tracer.real_of(tensor)
    written = vm.world.record_of(real)
    if written is not None and name in written.slots:
        return written.slots[name]
    with torch_private.without_modes():
        storage = attributes(real)
        present = name in storage
    if present:
        return vm.world.wrap(storage[name], source.attr(name))
    found = next((vars(cls)[name] for cls in type(real).__mro__ if name in vars(cls)), ABSENT)
    if found is not ABSENT and not hasattr(type(found), "__set__"):  # instead of which a tensor may have one of its own
        vm.world.guard_disjoint(source.step("dict_of"), name)
    return ABSENT


def store_tensor_attr(vm: Interpreter, tensor: Any, name: str, value: Any) -> None:
    """``tensor.name = value``: what is older than the frame waits, as with other writes, until the graph has run."""
    source = vm.tracer.source_of(tensor)
    if name == "requires_grad" and type(value) in (bool, torch.SymBool):
        vm.native(tensor.requires_grad_, vm.truth(value))
        return
    if name == "data" and type(value) is torch_private.FakeTensor and type(tensor) is torch_private.FakeTensor:
        _replace_data(vm, tensor, value)
        return
    fits = _fits_gradient(tensor, value) if name == "grad" else not (hasattr(torch.Tensor, name) or name[:2] == "__")
    if name == "grad" and source is None and fits and type(tensor) is torch_private.FakeTensor:
        vm.tracer.tape.gradients[id(tensor)] = value
        return
    if source is None and fits and type(tensor) is torch_private.FakeTensor:
        vm.tracer.attributes.setdefault(id(tensor), {})[name] = value
        return
    if source is None or not fits or type(tensor) is not torch_private.FakeTensor:
        raise Break(f"assignment to Tensor.{name}", "change the tensor outside compiled code")
    record = vm.world.add(vm.tracer.real_of(tensor), source)
    unread = "grad" not in record.slots and not any(step.key == "grad" for step in source.children.values())
    if name == "grad" and value is None and unread and not vm.tracer.op_count:
        vm.tracer.tape.cleared.append(source)
    record.slots[name] = value
    record.dirty = True


def drop_gradients(vm: Interpreter) -> None:
    """Leave ``.grad`` empty, at its end, of tensors for which the frame has emptied it before all else."""
    cleared = {*map(id, vm.tracer.tape.cleared)}
    for record in vm.world.records.values():
        if id(record.source) in cleared and "grad" in record.slots:
            record.slots["grad"] = None


def _fits_gradient(tensor: Any, value: Any) -> bool:
    """May it be the tensor's gradient? Torch says what is wrong with others."""
    if value is None:
        return True
    with torch_private.DisableTorchFunction():
        facts = [(t.shape, t.dtype, t.device, t.layout) for t in (tensor, value) if is_stand_in(t)]
    return value is not tensor and len(facts) == 2 and facts[0] == facts[1]


def set_data(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """``tensor.data = data``, in a graph."""
    tensor.data = data


def _replace_data(vm: Interpreter, tensor: Any, data: Any) -> None:
    """``tensor.data = data``: of a parameter that the frame has made, which is then another node, or from outside.

    Autograd sees the latter's new data where it has kept the tensor, which ATen graphs cannot say.
    """
    tracer, own = vm.tracer, vm.tracer.source_of(tensor) is None
    with torch_private.DisableTorchFunction():
        facts = [(t.dtype, t.device, t.shape, t.stride(), t.storage_offset()) for t in (tensor, data)]
        fits = tensor.is_leaf and not tensor._is_view() and (own or facts[0] == facts[1])
    fits = fits and (own or id(tensor) not in tracer.rules.classes)  # of which the graph has another object
    if not fits or not (_is_unused(tracer, tensor) if own else not (vm.has_regions or tensor.is_inference())):
        raise Break("assignment to Tensor.data", "change the tensor outside compiled code")
    if not own:
        tracer.record(set_data, (tensor, data), {}, None)
        tracer.data_writes += 1
        return
    made = tracer.call_whole(torch.nn.Parameter, (data,), {"requires_grad": tensor.requires_grad})
    with torch_private.DisableTorchFunction(), tracer.fake_mode:
        tensor.data = data
    tracer.nodes[id(tensor)] = tracer.node_of(made)


def _is_unused(tracer: Any, tensor: Any) -> bool:
    """Has the frame made this parameter, and computed nothing with it that has gradients?"""
    node = tracer.nodes.get(id(tensor)) if isinstance(tensor, torch.nn.Parameter) else None
    known = node is not None
    while node is not None:
        found = [user.meta["example_value"] for user in node.users]
        known = known and all(t is tensor or not getattr(t, "requires_grad", True) for t in found)
        first = node.args[0] if node.args else None
        node = first if isinstance(first, torch.fx.Node) and first.meta["example_value"] is tensor else None
    return known


def stand_in_attr(vm: Interpreter, obj: Any, name: str) -> Any:
    """An attribute of a symbolic number (of the plain number, but for what is that itself) or of a generator."""
    kind = type(obj)
    if name == "__class__":
        return python_type(vm, obj)
    if kind is InterpretedGenerator:
        if name in ("__name__", "__qualname__"):
            return obj.names[name == "__qualname__"]
        if name not in ("send", "throw", "close", "__next__", "__iter__"):
            raise Break(f"{name} of a generator")
        return vm.native(getattr, obj, name)
    if name == "real" and kind is not torch.SymBool:
        return obj
    return vm.native(getattr, SYMBOLIC[kind](obj), name)
