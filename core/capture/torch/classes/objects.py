"""Objects that are no tensors, whose class takes over torch's functions: ``__torch_function__``.

Torch itself decides who is asked, in which order and about what: it is called with a delegate in the place of each such
object, whose ``__torch_function__`` has the object's own interpreted.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import HEAP
from jitney.capture.interpreter.generators import Reentrant
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ARRAYS, STAND_INS
from jitney.capture.python.c_boundary import OWN_TYPES, PLAIN, expose, refuse_asking
from jitney.capture.python.classes import lookup
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

NAME = "__torch_function__"
HINT = "call the function on tensors"


def are_in(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Is one of these arguments, or what a list among them holds, such an object?"""
    values = [*_flat(args), *_flat(kwargs.values())] if kwargs else list(_flat(args))
    for value in values:
        refuse_asking(vm, value)
    return any(map(takes_over, values))


def call(vm: Interpreter, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A function of torch's on arguments with such objects among them."""
    modes = torch_private.function_modes()
    if modes != [vm.tracer]:
        raise Break(f"an object with its own {NAME} within a torch function mode, or in a transform", HINT)
    delegates = _Delegates(vm, modes)
    given = [delegates.of(expose(vm, a)) for a in args]
    named = {key: delegates.of(expose(vm, value)) for key, value in kwargs.items()}
    torch_private.set_function_modes([])
    try:
        return delegates.behind(vm.native(fn, *given, **named))
    finally:
        torch_private.set_function_modes(modes)


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if type(value) in (list, tuple):
            yield from value
        else:
            yield value


def takes_over(value: Any) -> bool:
    """Is it such an object?"""
    kind = type(value)
    if kind in PLAIN or kind in STAND_INS or kind in OWN_TYPES or kind in ARRAYS or not kind.__flags__ & HEAP:
        return False
    return hasattr(kind, NAME) and not isinstance(value, torch.Tensor | torch.overrides.TorchFunctionMode)


class _Delegates:
    """The delegates of one call. ``modes`` are active while the program's code is interpreted."""

    def __init__(self, vm: Interpreter, modes: list[Any]) -> None:
        self.vm = vm
        self.modes = modes
        self.classes: dict[type, type] = {}
        self.made: dict[int, Any] = {}  # by the object's identity
        self.objects: dict[int, Any] = {}  # by the delegate's

    def of(self, value: Any) -> Any:
        """The value as torch is to see it."""
        if type(value) in (list, tuple):
            return type(value)(map(self.of, value))
        if not takes_over(value):
            return value
        if id(value) not in self.made:
            self.made[id(value)] = delegate = self.class_of(type(value))()
            self.objects[id(delegate)] = value
        return self.made[id(value)]

    def behind(self, value: Any) -> Any:
        """The value as the program is to see it."""
        if type(value) in (list, tuple):
            return type(value)(map(self.behind, value))
        if type(value) is dict:
            return {key: self.behind(part) for key, part in value.items()}
        return self.objects.get(id(value), value)

    def class_of(self, cls: type) -> type:
        """A class with this one's name, below those of the classes that this one is below."""
        if cls not in self.classes:
            method = lookup(self.vm, cls, NAME)
            if type(method) is not classmethod or type(method.__func__) is not types.FunctionType:
                raise Break(f"the {NAME} of {cls.__qualname__}, which is no class method of the program's", HINT)
            above = [base for base in cls.__mro__[1:] if hasattr(base, NAME)]
            bases = tuple(map(self.class_of, above[:1]))
            namespace = {NAME: staticmethod(self.asking(cls, method.__func__)), "__module__": cls.__module__}
            self.classes[cls] = type(cls.__name__, bases, namespace)
        return self.classes[cls]

    def asking(self, cls: type, method: types.FunctionType) -> Any:
        """What torch calls."""
        interpret = Reentrant(self.vm, method)

        def ask(func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            classes = {delegate: kind for kind, delegate in self.classes.items()}
            whole = tuple(classes.get(kind, kind) for kind in kinds)
            torch_private.set_function_modes(self.modes)
            try:
                return interpret(cls, func, whole, self.behind(args), self.behind(kwargs or {}))
            finally:
                torch_private.set_function_modes([])

        return ask
