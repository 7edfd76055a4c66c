"""What is computed with tensors of the program's own classes, see ``tensor_classes.py``: ``__torch_function__``."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import get_default_nowrap_functions, get_testing_overrides

from jitney._util.ownership import trusted
from jitney.capture.interpreter.binding import held
from jitney.capture.interpreter.generators import Reentrant
from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.kinds import is_stand_in
from jitney.capture.python.classes import PYTHON_FUNCTION, lookup
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.classes import tensor_classes
from jitney.capture.torch.classes.objects import NAME, are_in
from jitney.capture.torch.classes.wrappers import HINT
from jitney.capture.torch.stand_in_attributes import python_type
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter
    from jitney.capture.torch.tensors import Tracer

special = FunctionTable()
# Functions that ask modes alone. Others that torch says to ignore ask classes, too: whatever parses arguments in C.
UNASKED = (torch.tensor, torch.as_tensor, torch.asarray)
MODE = torch.overrides.TorchFunctionMode


def call(vm: Interpreter, func: Any, named: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation about which the program has a say: its innermost mode, then the first class that has an answer."""
    tracer, rules = vm.tracer, vm.tracer.rules
    kinds = _kinds(vm, func, named, args, kwargs)
    if rules.modes:
        return _by_mode(vm, func, tuple(kinds), args, kwargs)
    if func in UNASKED:
        with rules.as_plain():
            return tracer.__torch_function__(func, (), args, kwargs)
    for cls in kinds:
        method = lookup(vm, cls, NAME)
        if type(method) is not classmethod or type(method.__func__) is not PYTHON_FUNCTION:
            raise Break(f"the {NAME} of {cls.__qualname__}, which is no class method of the program's", HINT)
        if method.__func__ is tensor_classes.DEFAULT:
            answer = by_default(vm, cls, func, kinds, args, kwargs)
        else:
            answer = _within_mode(
                vm, Reentrant(vm, held(vm, method, "__func__")), cls, func, tuple(kinds), args, kwargs
            )
        if answer is not NotImplemented:
            return answer
    raise Break(f"no {NAME} of {', '.join(cls.__qualname__ for cls in kinds)} has an answer", HINT)


def _kinds(vm: Interpreter, func: Any, named: Any, args: Any, kwargs: Any) -> list[type]:
    """The classes that torch names, in its order: fields, and methods without arguments, name plain tensors', too."""
    if isinstance(func, types.MethodWrapperType) or torch_private.FakeTensor in named:
        return [python_type(vm, args[0])]
    kinds = vm.tracer.rules.among(args, kwargs)
    tensors = tensor_classes.flat((args, kwargs)) if type(func) is PYTHON_FUNCTION else []
    return [*kinds, torch.Tensor] if any(python_type(vm, t) is torch.Tensor for t in tensors) else kinds


def _by_mode(vm: Interpreter, func: Any, kinds: tuple[type, ...], args: Any, kwargs: Any) -> Any:
    """What the program's innermost mode says, within those around it."""
    modes = vm.tracer.rules.modes
    mode, step = modes.pop()
    try:
        method = vm.call(getattr, mode, NAME)
        if getattr(method, "__self__", None) is not mode:
            raise Break(f"the {NAME} of {type(mode).__qualname__} is no plain method, which torch refuses", HINT)
        answer = _within_mode(vm, Reentrant(vm, method), func, kinds, args, kwargs)
    finally:
        modes.append((mode, step))
    if answer is NotImplemented:
        raise Break(f"the {NAME} of {type(mode).__qualname__} has no answer", HINT)
    return answer


def _within_mode(vm: Interpreter, fn: Any, *args: Any) -> Any:
    """Call a function as the captured program runs, of whose modes torch has taken the tracer away meanwhile."""
    modes = torch_private.function_modes()
    torch_private.set_function_modes([*modes, vm.tracer])
    try:
        return fn(*args)
    finally:
        torch_private.set_function_modes(modes)


def by_default(vm: Interpreter, cls: Any, func: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
    """``torch.Tensor.__torch_function__``: as on plain tensors, and the results are of the class."""
    if not all(issubclass(cls, kind) for kind in kinds if kind is not torch_private.FakeTensor):
        return NotImplemented
    tracer = vm.tracer
    begin = len(tracer.kept)
    with tracer.rules.as_plain():
        if type(func) is PYTHON_FUNCTION or id(func) in vm.handlers.functions:
            result = _within_mode(vm, lambda: Reentrant(vm, func)(*args, **kwargs))
        else:
            result = tracer.__torch_function__(func, (), tuple(args), kwargs)
    if func in get_default_nowrap_functions():
        return result
    made = {id(t) for t in tracer.kept[begin:]} - {id(t) for t in tensor_classes.flat((args, kwargs))}
    return _converted(tracer, result, cls, made)


def _converted(tracer: Tracer, value: Any, cls: type, made: set[int]) -> Any:
    """The value with its tensors as ones of the class; those that the operation has ``made`` need no other name."""
    if is_stand_in(value):
        known = tracer.rules.classes.get(id(value), torch.Tensor)
        return (
            value if cls is torch.Tensor or issubclass(known, cls) else as_class(tracer, value, cls, id(value) in made)
        )
    if isinstance(value, (tuple, list)):
        items = [_converted(tracer, item, cls, made) for item in value]
        return type(value)(items)
    return value


def as_class(tracer: Tracer, value: Any, cls: type, new: bool = False) -> Any:
    """``value.as_subclass(cls)``. A ``new`` tensor, of which nobody knows yet, becomes one of the class itself."""
    if not isinstance(cls, type) or not issubclass(cls, torch.Tensor):
        raise Break("Tensor.as_subclass() of this class", HINT)
    reason = tensor_classes.refusal(cls)
    if cls is not torch.Tensor and (reason or not tensor_classes.has_rules(cls)):
        raise Break(reason or f"a {cls.__qualname__} is made of a tensor", HINT)
    if tracer.rules.modes and not new:
        raise Break("a tensor of another class is made within a torch function mode", HINT)
    with tracer.rules.as_plain():
        made = value if new else tracer.__torch_function__(torch.ops.aten.alias.default, (), (value,), {})
    if cls is not torch.Tensor:
        tracer.rules.know(made, cls)
    return made


def as_plain_tensor(vm: Interpreter, value: Any) -> Any:
    """The same memory as a tensor of no class of the program's."""
    return as_class(vm.tracer, value, torch.Tensor) if id(value) in vm.tracer.rules.classes else value


# ------------------------------------------------------------------ what the program calls


@special(tensor_classes.DEFAULT)
def _default(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    names = ("cls", "func", "types", "args", "kwargs")
    given: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
    cls, func, kinds = given.get("cls"), given.get("func"), given.get("types")
    whole, named = given.get("args", ()), given.get("kwargs") or {}
    known = isinstance(cls, type) and type(kinds) is tuple and type(whole) is tuple and type(named) is dict
    if not known or len(args) > len(names) or are_in(vm, list(whole), named):
        raise Break(f"torch.Tensor.{NAME} is called with these arguments", HINT)
    return vm.native(_InTorch(vm, by_default), cls, func, kinds, whole, named)


class _InTorch:
    """A function here as C code of torch's, which is called without the tracer's mode, and may raise."""

    __slots__ = ("fn", "vm")

    def __init__(self, vm: Interpreter, fn: Any) -> None:
        self.vm = vm
        self.fn = fn

    def __call__(self, *args: Any) -> Any:
        modes = torch_private.function_modes()
        torch_private.set_function_modes([mode for mode in modes if mode is not self.vm.tracer])
        try:
            return self.fn(self.vm, *args)
        finally:
            torch_private.set_function_modes(modes)


def are_asked(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> bool:
    """Is it for the classes of these tensors to say what this function does, which capture has a handler for?"""
    rules = vm.tracer.rules
    if not rules.have_a_say(args, kwargs) or fn not in _overridable():
        return False
    kinds = rules.among(args, kwargs)
    watched = rules.modes or not all(map(tensor_classes.has_default_rules, kinds))
    if watched and type(fn) is PYTHON_FUNCTION:  # what it makes of its arguments is seen
        raise Break(f"{fn.__qualname__}() where {NAME} of the program's sees it", HINT)
    return bool(kinds)


@functools.cache
def _overridable() -> Any:
    return get_testing_overrides()


def ask(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Have them say it."""
    return vm.native(vm.tracer.rules.ask, vm.tracer, fn, *args, **kwargs)


@special(torch.overrides.handle_torch_function)
def _handled(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return ask(vm, args[0], args[2:], kwargs)


@special(torch.Tensor.as_subclass)
def _as_subclass(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or kwargs or not is_stand_in(args[0]):
        raise Break("Tensor.as_subclass() is called with these arguments", HINT)
    return as_class(vm.tracer, *args)


@special(torch_private.make_subclass)
def _make_subclass(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) not in (2, 3) or kwargs or not is_stand_in(args[1]) or args[2:] not in ([], [False]):
        raise Break("Tensor._make_subclass() is called with these arguments", HINT)
    cls, data = args[:2]
    with vm.tracer.rules.as_plain():
        return as_class(vm.tracer, vm.native(torch.Tensor.detach, data), cls, new=True)


class Unasked:
    """``torch._C.DisableTorchFunctionSubclass()``: no class is asked meanwhile."""

    def __enter__(self) -> None:
        raise NotImplementedError  # handled below

    def __exit__(self, *args: Any) -> None:
        raise NotImplementedError


@special(Unasked.__enter__)
def _enter_unasked(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    vm.tracer.rules.is_plain += 1
    vm.tracer.rules.open_unasked.append(vm.break_step())


@special(Unasked.__exit__)
def _exit_unasked(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    vm.tracer.rules.open_unasked.pop()
    vm.tracer.rules.is_plain -= 1


# ------------------------------------------------------------------ modes


@special(*torch_private.ENTERS_MODE)
def _enter(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    mode = args[0]
    if not isinstance(mode, MODE) or trusted(type(mode)) or kwargs:
        raise Break("a torch function mode of torch's own is entered", HINT)
    vm.tracer.rules.modes.append((mode, vm.break_step()))
    return mode


@special(*torch_private.LEAVES_MODE)
def _exit(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    modes = vm.tracer.rules.modes
    if not modes or (args and modes[-1][0] is not args[0]):
        raise Break("a torch function mode is left that was not entered last", HINT)
    mode, _ = modes.pop()
    return None if args else mode


def refuse_open(vm: Interpreter, reason: str = "the function returns") -> None:
    """Where capture stops within a mode, or where classes are not asked, it is to stop before that."""
    if vm.tracer.rules.open_unasked:
        raise Restart(vm.tracer.rules.open_unasked[0], f"within DisableTorchFunctionSubclass(): {reason}", HINT)
    if vm.tracer.rules.modes:
        mode, step = vm.tracer.rules.modes[0]
        raise Restart(step, f"within the torch function mode {type(mode).__qualname__}: {reason}", HINT)
