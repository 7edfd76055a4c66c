"""Lazy modules (``nn.LazyLinear``) at their first call, whose parameters get their sizes from the arguments.

A frame that calls one makes the parameters ahead, as torch's own hook does, and is captured again: there is one graph,
and one entry for this call and those that follow. Numbers are drawn as in eager, if the frame has drawn none before. If
capture ends otherwise than with a graph over these parameters, the module is made lazy again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from jitney._util.ownership import trusted
from jitney.capture.interpreter.signals import Initialise
from jitney.capture.kinds import ATOMS, STAND_INS
from jitney.capture.original_functions import is_own
from jitney.capture.python.c_boundary import specialise
from jitney.capture.python.classes import in_class
from jitney.capture.world.record import Record
from jitney.torch_compat import torch_private
from jitney.torch_compat.rng_state import RandomStates

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

HOOK: Any = LazyModuleMixin._infer_parameters


class Initialisation:
    """The making of a lazy module's parameters, which can be undone.

    Args:
        module: the module, which is changed by ``run``.
        args: of its call, tensors on the device "meta".
        kwargs: likewise.
        step: of the capture, at which it is called.
    """

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], step: int) -> None:
        self.module, self.args, self.kwargs, self.step = module, args, kwargs, step

    def run(self) -> None:
        """Make the parameters. Raises what torch raises."""
        module = self.module
        self.kind = type(module)
        self.attributes = dict(vars(module))
        self.tables = [(value, value.copy()) for value in self.attributes.values() if isinstance(value, dict)]
        self.tensors = [(t, type(t), t.data) for t in uninitialised(module)]
        self.generators = RandomStates({t.device for t, _, _ in self.tensors})
        HOOK(module, module, self.args, self.kwargs)

    def undo(self) -> None:
        """Leave the module, and torch's generators of random numbers, as they were."""
        module = self.module
        module.__class__ = self.kind
        vars(module).clear()
        vars(module).update(self.attributes)
        for table, content in self.tables:
            table.clear()
            table.update(content)
        for tensor, kind, data in self.tensors:
            tensor.data = data
            tensor.__class__ = kind
        self.generators.put_back()


def run(lazy: Initialisation, initialised: list[Initialisation], unable: set[int]) -> None:
    """Make a module's parameters; where torch raises, all is as it was."""
    try:
        lazy.run()
    except Exception:
        lazy.undo()
        unable.add(id(lazy.module))
    else:
        initialised.append(lazy)


def undo(initialised: list[Initialisation], since: int = 0) -> None:
    """Undo those made at this step or later, the latest first."""
    while initialised and initialised[-1].step >= since:
        initialised.pop().undo()


def uninitialised(module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters and buffers that have no size yet."""
    both: Iterable[Any] = (*module._parameters.values(), *module._buffers.values())
    return [t for t in both if torch.nn.parameter.is_lazy(t)]


def class_asked(vm: Interpreter, value: Any) -> None:
    """The program asks for the class of an object, which is another one once the parameters are there."""
    if isinstance(value, LazyModuleMixin):
        vm.classes_asked.add(id(value))


def attribute_asked(vm: Interpreter, value: Any, name: str) -> None:
    """The program asks for an attribute, which may be one of a class that the object's is no more by then."""
    if isinstance(value, LazyModuleMixin):
        kind: Any = type(value)
        if kind.cls_to_become is None or in_class(kind, name) is not in_class(kind.cls_to_become, name):
            vm.classes_asked.add(id(value))


def initialise(vm: Interpreter, called: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Where this is the first call of a lazy module, capture starts over with its parameters made.

    Not where the frame could tell, or numbers would be drawn in another order.
    """
    if not isinstance(called, LazyModuleMixin):
        return
    module: Any = called
    record = vm.world.record_of(module)
    kind: Any = type(module)
    missing = uninitialised(module)
    hook = next(iter(module._forward_pre_hooks.values()), None)
    if (
        record is None
        or _is_looked_into(record.dict_record)
        or id(module) in vm.classes_asked
        or not trusted(kind)
        or getattr(hook, "__func__", None) is not HOOK
        or getattr(hook, "__self__", None) is not module
        or not all(map(is_own, (HOOK, kind.initialize_parameters)))
        or torch_private.global_module_hooks()["torch.nn.modules.module._global_forward_pre_hooks"]
        or vm.tracer is not vm.world.tracer
        or vm.tracer.region is not None
        or vm.tracer.fake_mode.draws
        or vm.tracer.open_scopes
        or vm.tracer.rules.modes
    ):
        return
    if not all(type(v) in (*STAND_INS, *ATOMS) for v in (*args, *kwargs.values())):
        return
    if any(id(tensor) in vm.tracer.stand_ins for tensor in missing):
        return
    with torch_private.without_modes():
        given = tuple(map(_without_data, args)), {k: _without_data(v) for k, v in kwargs.items()}
    raise Initialise(Initialisation(module, *given, vm.steps))


def _is_looked_into(attributes: Record | None) -> bool:
    """Has the frame found something among the module's attributes, or written to them?"""
    if attributes is None:
        return False
    return attributes.dirty or attributes.content is not None or bool(attributes.source.children)


def _without_data(value: Any) -> Any:
    """What tells the module the size of an argument."""
    if type(value) not in STAND_INS:
        return value
    return torch.empty(tuple(map(specialise, value.shape)), dtype=value.dtype, device="meta")
