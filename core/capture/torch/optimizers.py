"""What torch's optimizers call that is not Python: registered like other special functions."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter.binding import bind_arguments
from jitney.capture.interpreter.signals import Break
from jitney.capture.python.c_boundary import expose
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.guards.frozen import stepped
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.codegen.rebuild import Rebuilder
    from jitney.capture.interpreter.frame import Frame
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

MODULE = "torch.optim"


def in_optimizer(vm: Interpreter) -> bool:
    """Is the running frame torch's own optimizer code, or has a frame above it an optimizer as its first argument?"""
    return _is_torchs(vm) or any(isinstance(_first(frame), torch.optim.Optimizer) for frame in vm.frames)


def _is_torchs(vm: Interpreter) -> bool:
    return str(vm.frames[-1].globals.get("__name__")).startswith(MODULE)


def _first(frame: Frame) -> Any:
    """The first argument of a frame."""
    code = frame.info.code
    name = code.co_varnames[0] if code.co_argcount else ""
    if name in frame.cells:  # a function in it reads it, too
        return getattr(frame.cells[name], "cell_contents", None)
    return frame.locals.get(name)


def is_courtesy_break(vm: Interpreter, fn: types.FunctionType) -> bool:
    """The graph breaks that the optimizers ask of TorchDynamo, for its own sake."""
    return fn.__name__ == "graph_break" and fn.__module__ == "torch._dynamo.decorators" and _is_torchs(vm)


@special(torch_private.group_tensors)
def _group_tensors(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """Lists of tensors by device and dtype of the first list's: a dict to (lists, positions)."""
    lists, with_indices = [expose(vm, a) for a in (*args, *kwargs.values())]
    groups: dict[Any, Any] = {}
    first = lists[0]
    if not all(isinstance(t, torch.Tensor) for t in first) or any(m and len(m) != len(first) for m in lists):
        raise Break("tensors are grouped whose first list has gaps", "step the optimizer outside the compiled function")
    for at, tensor in enumerate(first):
        key = (tensor.device, tensor.dtype)
        if key not in groups:
            groups[key] = (vm.world.mark_fresh([vm.world.mark_fresh([]) for _ in lists]), vm.world.mark_fresh([]))
        members, positions = groups[key]
        for column, given in zip(members, lists, strict=True):
            if given:
                column.append(given[at])
        if with_indices:
            positions.append(at)
    return vm.world.mark_fresh(groups)


@special(stepped)
def _stepped(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    """What is told of frozen parameters after a step waits for the graph, which writes to them."""
    vm.stepped.append(args[0])


# Interpreted in the place of ``zero_grad()``.


def _forget_gradients(parameters: Iterable[torch.Tensor]) -> None:
    for parameter in parameters:
        parameter.grad = None


def _forget_all(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        _forget_gradients(group["params"])


def _forget_all_of_module(module: torch.nn.Module) -> None:
    _forget_gradients(module.parameters())


def _sets_to_none(args: Args, kwargs: Kwargs) -> bool:
    given = [*args[1:], *kwargs.values()] or [True]
    return given[0] is True and kwargs.keys() <= {"set_to_none"}


@special(torch.optim.Optimizer.zero_grad)
def _zero_grad(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """Where all gradients become None, it does not matter which are there: nothing reads them, nothing is guarded."""
    function: Any = torch.optim.Optimizer.zero_grad
    if not _sets_to_none(args, kwargs):
        return bind_arguments(vm, function.__wrapped__, args, kwargs)  # torch keeps it from its own compiler
    function = _forget_all
    return bind_arguments(vm, function, args[:1], {})


@special(torch.nn.Module.zero_grad)
def _zero_grad_of_module(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    function: Any = torch.nn.Module.zero_grad
    if not _sets_to_none(args, kwargs) or vm.truth(vm.call(getattr, args[0], "_is_replica", False)):
        return bind_arguments(vm, function, args, kwargs)
    function = _forget_all_of_module
    return bind_arguments(vm, function, args[:1], {})


def waiting_steps(vm: Interpreter, rebuild: Rebuilder) -> Iterator[str]:
    """The text of the calls that have waited, in order."""
    for optimizer in vm.stepped:
        yield f"{rebuild.expr(stepped)}({rebuild.each((optimizer, None, None))})"
