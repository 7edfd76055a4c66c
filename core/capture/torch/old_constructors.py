"""Tensors made in old ways, in terms of those that torch has now.

``torch.Tensor(...)``, ``torch.LongTensor(...)``, ``Variable(...)``, ``torch.tensor`` of tensors; functions that
``torch.jit.script`` has compiled are the Python that they were compiled from.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.capture.numpy.stand_in import Array
from jitney.capture.python.c_boundary import expose, has_tensor
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

HINT = "use torch.tensor(data) or torch.empty(sizes)"


def _constructed(cls: Any, vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """``torch.FloatTensor(...)``: of sizes, without numbers of its own, or of data, which is converted."""
    name = f"{cls.__module__}.{cls.__name__}"
    base = cls is torch.Tensor
    if kwargs or (base and torch_private.default_tensor_device() != "cpu"):
        raise Break(f"{name} with a device, or keywords", HINT)
    dtype = torch.get_default_dtype() if base else cls.dtype
    device = "cuda" if not base and cls.is_cuda else "cpu"
    values = [expose(vm, a) for a in args]
    first = values[0] if values else ()
    if type(first) is torch.Size or all(type(v) in (int, torch.SymInt) for v in values):
        sizes = tuple(first) if type(first) is torch.Size else values or (0,)
        return vm.native(torch.empty, sizes, dtype=dtype, device=device)
    if len(values) == 1 and type(first) in (list, tuple):
        return vm.native(of_data if has_tensor(first) else torch.tensor, first, dtype=dtype, device=device)
    if len(values) == 1 and type(first) is Array and device == "cpu" and not first.scalar:
        return vm.native(vm.call(torch.from_numpy, first).to, dtype)
    raise Break(f"{name} of a {type(first).__qualname__}", HINT)


for _cls in (torch.Tensor, *(c for c in torch_private.tensor_classes() if not c.is_sparse)):
    special.add(_cls, functools.partial(_constructed, _cls))


@special(torch.autograd.Variable)
def _variable(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """``Variable(x)`` is ``x.detach()``."""
    named = dict(zip(("data", "requires_grad", "volatile"), args, strict=False)) | kwargs
    data = named.pop("data", None)
    wants = named.pop("requires_grad", False)
    if any(named.values()) or type(data) is not torch_private.FakeTensor or type(wants) not in (bool, type(None)):
        raise Break("a Variable of no tensor, or with volatile", "use the tensor itself")
    made = vm.native(data.detach)
    return vm.native(made.requires_grad_) if wants else made


def of_data(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    """``torch.tensor`` of nested lists with tensors of one element in them: stacks of their items."""
    leaves = list(_leaves(data))
    if device not in (None, "cpu") or torch_private.default_tensor_device() != "cpu":
        raise Break("torch.tensor of tensors, on another device", "use torch.stack")
    if any(is_stand_in(v) and (v.requires_grad or v.numel() != 1 or v.device.type != "cpu") for v in leaves):
        raise Break("torch.tensor of tensors that require grad, or have more elements than one", "use torch.stack")
    kinds = [v.dtype if is_stand_in(v) else torch.tensor(v).dtype for v in leaves]
    return _stacked(data, dtype or functools.reduce(torch.promote_types, kinds))


def _leaves(data: Any) -> Any:
    for value in data:
        if type(value) in (list, tuple):
            yield from _leaves(value)
        elif is_stand_in(value) or type(value) in (bool, int, float):
            yield value
        else:
            raise Break(f"torch.tensor of tensors and a {type(value).__qualname__}", "use torch.stack")


def _stacked(data: Any, dtype: torch.dtype) -> Any:
    parts = []
    for value in data:
        if type(value) in (list, tuple):
            parts.append(_stacked(value, dtype))
        else:
            parts.append(value.detach().to(dtype) if is_stand_in(value) else torch.tensor(value, dtype=dtype))
    if len({tuple(p.shape) for p in parts}) != 1:
        raise Break("torch.tensor of tensors of several shapes", "use torch.stack")
    return torch.stack(parts)


def source_of_script(fn: Any) -> Any:
    """The Python function that a function of TorchScript was compiled from; None if nobody knows."""
    return getattr(fn, "_torchdynamo_inline", None) if type(fn) is torch.jit.ScriptFunction else None


@special(torch.jit.annotate)
def _annotate(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return args[1] if len(args) == 2 else kwargs["the_value"]
