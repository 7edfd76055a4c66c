"""``nn.Parameter`` and ``nn.Buffer`` made in captured code: a node that makes one of a tensor of the graph.

What makes the tensor is in the graph too, so parameters of modules made inside are drawn at each call, in eager's
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.capture.original_functions import is_own
from jitney.capture.python.attributes import lookup
from jitney.capture.tables import Args, FunctionTable, Handler, Kwargs
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()


def _maker(cls: Any, name: str, default: bool) -> Handler:
    """The handler of a class whose instances are tensors: ``cls(data, flag)``, where ``name`` is the flag's."""

    new = vars(cls)["__new__"]

    def make(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if lookup(vm, cls, "__new__") is not new:
            raise Break(f"nn.{cls.__name__}.__new__ has been replaced")
        given = dict(zip(("data", name), args, strict=False)) | kwargs
        if len(args) > 2 or len(given) < len(args) + len(kwargs) or given.keys() - {"data", name}:
            raise Break(f"nn.{cls.__name__} is called with arguments that it does not take")
        data, flag = given.get("data"), given.get(name, default)
        data = vm.call(torch.empty, 0) if data is None else data
        if not is_stand_in(data) or type(data) is not torch_private.FakeTensor:
            raise Break(f"an nn.{cls.__name__} is made of a {type(data).__qualname__}", "make it of a plain tensor")
        return vm.tracer.call_whole(cls, (data,), {name: vm.truth(flag)})

    return make


for _class, _name, _default in ((torch.nn.Parameter, "requires_grad", True), (torch.nn.Buffer, "persistent", True)):
    if is_own(_class) and is_own(_class.__new__):
        special.add(_class, _maker(_class, _name, _default))


def as_parameter(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """What a graph gives for a parameter: it may have computed it as a plain tensor."""
    return tensor if isinstance(tensor, torch.nn.Parameter) else torch.nn.Parameter(tensor, requires_grad)


def as_buffer(tensor: torch.Tensor, persistent: bool) -> torch.Tensor:
    """What a graph gives for an ``nn.Buffer``."""
    return tensor if isinstance(tensor, torch.nn.Buffer) else torch.nn.Buffer(tensor, persistent=persistent)
