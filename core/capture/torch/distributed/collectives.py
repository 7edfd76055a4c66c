"""Functional collectives (``torch.distributed._functional_collectives``): operations that end with the wait.

Eager gives a tensor that waits when it is looked at; in a graph the result is a plain one, as torch.compile has it. The
group goes into the graph by its name, and a guard holds that it is the same group.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.torch_compat import torch_private
from jitney.torch_compat.distributed.collectives import process_groups, wait_for_collective

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

MODULE = "torch.distributed._functional_collectives"
NAMES = frozenset(
    "all_reduce all_gather_tensor all_gather_single reduce_scatter_tensor reduce_scatter_single broadcast "
    "all_to_all_single permute_tensor all_reduce_coalesced all_gather_into_tensor_coalesced "
    "all_gather_single_coalesced reduce_scatter_tensor_coalesced reduce_scatter_single_coalesced "
    "all_gather_tensor_autograd all_gather_single_autograd reduce_scatter_tensor_autograd "
    "reduce_scatter_single_autograd all_to_all_single_autograd".split()
)
WORLD = ("torch.distributed.distributed_c10d", "_WorldMeta.WORLD")  # the property behind ``group.WORLD``


def is_one(fn: types.FunctionType) -> bool:
    """Is it a functional collective, or what finds the group of all?"""
    return (fn.__module__ == MODULE and fn.__name__ in NAMES) or (fn.__module__, fn.__qualname__) == WORLD


def call(vm: Interpreter, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Record a call, or look the group of all up."""
    vm.world.assumptions.keep_private("a process group")
    if fn.__module__ != MODULE:
        return _world(vm)
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        raise Break(f"{fn.__qualname__} of these arguments", "") from None
    given = dict(bound.arguments)
    tensors = given.pop("self")
    group = _name(vm, given.pop("group"))
    flat = list(tensors) if type(tensors) in (list, tuple) else [tensors]
    settings = {key: vm.call(_plain, value) for key, value in given.items()}
    if not all(map(is_stand_in, flat)) or not all(map(_is_plain, settings.values())):
        raise Break(f"{fn.__qualname__} of something else than tensors and numbers", "call it outside compiled code")
    many = type(tensors) in (list, tuple)
    if fn.__name__ == "broadcast" and torch.is_grad_enabled() and any(_requires_grad(t) for t in flat):
        raise Break("torch's broadcast operator has no gradient, and eager's call has one", "call it under no_grad")
    operation = _operation(fn, group, settings, many)
    tracer = vm.tracer
    paused, tracer.pause = tracer.pause, True
    try:
        result = tracer.run(operation, tuple(flat), {})
    finally:
        tracer.pause = paused
    tracer.record(operation, tuple(flat), {}, result)
    return vm.world.mark_fresh(list(result)) if many else result


def _requires_grad(fake: Any) -> bool:
    with torch_private.DisableTorchFunction():
        return bool(fake.requires_grad)


def _operation(fn: Callable[..., Any], group: str, settings: dict[str, Any], many: bool) -> Callable[..., Any]:
    wait = wait_for_collective()

    def operation(*tensors: Any) -> Any:
        found = fn(list(tensors) if many else tensors[0], group=group, **settings)
        return tuple(map(wait, found)) if many else wait(found)

    operation.__name__ = operation.__qualname__ = fn.__name__
    return operation


def _world(vm: Interpreter) -> Any:
    owner = process_groups()
    source = vm.world.const(owner).attr("default_pg")
    group = owner.default_pg
    if group is None:
        raise Break("there is no process group", "")
    vm.world.guard(source, "is", group)
    return vm.world.wrap(group, source)


def _name(vm: Interpreter, group: Any) -> str:
    """The group's name; what it is, is guarded."""
    if type(group) is str:
        return group
    record = vm.world.record_of(group)
    name = getattr(group, "group_name", None)
    if record is None or type(name) is not str:
        raise Break("a collective over something else than a process group or its name", "give it the group")
    vm.world.guard(record.source, "is", group)
    return name


def _plain(value: Any) -> Any:
    """Interpreted: what is read is guarded."""
    return list(value) if isinstance(value, (list, tuple)) else value


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if type(value) is list else value is None or type(value) in (int, str, bool)
