"""``nn.Parameter`` and ``nn.Buffer`` made in captured code: a node that makes one of a tensor of the graph.

What makes the tensor is in the graph too, so parameters of modules made inside are drawn at each call, in eager's
order.

``module.to(tensor)`` is ``module.to(tensor.device, tensor.dtype)``.

And ``torch.func.functional_call``: a module called with other parameters and buffers, pending writes meanwhile. Nothing
is written: what replaces an entry is taken back when the call has returned, before the graph runs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.capture.original_functions import is_own
from jitney.capture.python import attributes
from jitney.capture.python.classes import lookup
from jitney.capture.tables import Args, FunctionTable, Handler, Kwargs
from jitney.capture.world.record import ABSENT, Record
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
        buffer = cls is torch.nn.Buffer  # which keeps the flag as it is given, and never asks for its truth
        made = vm.tracer.call_whole(cls, (data,), {name: flag is not False if buffer else vm.truth(flag)})
        if buffer:  # no class of its own: modules ask for these attributes
            vm.tracer.attributes.setdefault(id(made), {}).update(_is_buffer=True, persistent=flag)
        return made

    return make


for _class, _name, _default in ((torch.nn.Parameter, "requires_grad", True), (torch.nn.Buffer, "persistent", True)):
    if is_own(_class) and is_own(_class.__new__):
        special.add(_class, _maker(_class, _name, _default))


@special(torch_private.parse_to)
def _parse_to(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """What ``module.to(...)`` is asked for: a tensor stands for its device and dtype, which are guarded."""
    if args and is_stand_in(args[0]):
        with torch_private.DisableTorchFunction():
            args = [args[0].device, args[0].dtype, *args[1:]]
    return vm.native(torch_private.parse_to, *args, **kwargs)


@special(torch.nn.Parameter.__reduce_ex__)
def _reduced(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    raise Break("nn.Parameter.__reduce_ex__() serialises a tensor", "move it out of the compiled function")


def as_parameter(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """What a graph gives for a parameter: it may have computed it as a plain tensor."""
    return tensor if isinstance(tensor, torch.nn.Parameter) else torch.nn.Parameter(tensor, requires_grad)


def as_buffer(tensor: torch.Tensor, persistent: bool) -> torch.Tensor:
    """What a graph gives for an ``nn.Buffer``."""
    return tensor if isinstance(tensor, torch.nn.Buffer) else torch.nn.Buffer(tensor, persistent=persistent)


# ------------------------------------------------------------------ a module with others

WHAT = "torch.func.functional_call"
HINT = "call it outside the compiled function"


class Untied:
    """Has every parameter and buffer of a module one name only? A guard asks again."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.__qualname__ = f"the {type(module).__qualname__} has no tied weights"

    def __call__(self) -> bool:
        """No tensor is found twice."""
        module = self.module
        both = (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
        found = [id(tensor) for _, tensor in itertools.chain(*both)]
        return len(set(found)) == len(found)


@dataclass
class Replaced:
    """An entry of a module's table, until ``undo``."""

    record: Record
    key: str
    value: Any
    before: Any
    dirty: bool

    @classmethod
    def by(cls, record: Record, key: str, value: Any) -> Replaced:
        """The entry is this value now."""
        table = record.overlay if record.content is None else record.content
        made = cls(record, key, value, table.get(key, ABSENT), record.dirty)
        table[key] = value
        return made

    def undo(self) -> bool:
        """The entry is what it was; did the module leave it alone?"""
        record, before = self.record, self.before
        if record.content is None:
            alone = record.overlay.pop(self.key, ABSENT) is self.value
            if before is not ABSENT:
                record.overlay[self.key] = before
        else:  # all of the table has been read, before or by the module
            alone = record.content.get(self.key) is self.value
            record.content[self.key] = record.original[self.key] if before is ABSENT else before
        alone = alone and record.dirty == self.dirty
        record.dirty = self.dirty
        return alone


@special(torch.func.functional_call)
def _functional_call(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    names = ("module", "parameter_and_buffer_dicts", "args", "kwargs")
    given: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
    module, tables = given.get("module"), given.get("parameter_and_buffer_dicts")
    if set(given) - {*names, "tie_weights"} or len(args) > len(names) or not isinstance(module, torch.nn.Module):
        raise Break(f"{WHAT} of these arguments", HINT)
    pairs = vm.call(_pairs, tables)
    whole, named = vm.call(_arguments, given.get("args"), given.get("kwargs"))
    if vm.world.record_of(module) is None or not all(type(key) is str and is_stand_in(t) for key, t in pairs):
        raise Break(f"{WHAT} of a module of the frame's own, or with other values than tensors", HINT)
    untied = Untied(module)
    if not untied() or len({key for key, _ in pairs}) < len(pairs):
        raise Break(f"{WHAT} of a module with tied weights", HINT)
    vm.world.guard(vm.world.const(untied), "true", "{v}()")
    replaced: list[Replaced] = []
    try:
        for key, tensor in pairs:
            replaced.append(_replace(vm, module, key, tensor))
        result = vm.call(module, *whole, **named)
    finally:
        alone = [one.undo() for one in reversed(replaced)]
    if not all(alone):
        raise Break(f"{WHAT} of a module that sets its own parameters or buffers", HINT)
    return result


def _replace(vm: Interpreter, module: Any, name: str, tensor: Any) -> Replaced:
    *path, last = name.split(".")
    owner = module
    for part in path:
        owner = attributes.load_attr(vm, owner, part)
    for table in ("_parameters", "_buffers"):
        storage = attributes.load_attr(vm, owner, table)
        record = vm.world.record_of(storage)
        if record is None or record.dirty:
            raise Break(f"{WHAT} of a module whose tables are written to", HINT)
        if vm.world.dict_has(record, last):
            return Replaced.by(record, last, tensor)
    raise Break(f"{WHAT} with a name that the module lacks", HINT)


# Interpreted, so that what they read is guarded.


def _pairs(tables: Any) -> list[tuple[str, Any]]:
    if isinstance(tables, dict):
        return [(key, value) for key, value in tables.items()]
    return [(key, value) for table in tables for key, value in table.items()]


def _arguments(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    whole: tuple[Any, ...] = () if args is None else tuple(args) if isinstance(args, tuple) else (args,)
    return whole, {} if kwargs is None else {**kwargs}
