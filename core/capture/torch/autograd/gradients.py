"""``torch.autograd.grad`` of what the frame has computed: one node, which runs the engine over the graph's own tape.

The stand-ins have the same tape, so they know what the gradients are like and which inputs have none. What was computed
before the frame is on nobody's tape here: where a path may lead through it, the graph breaks.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture import metadata
from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.python.containers import iterable
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.autograd import transforms
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

GRAD = "torch.autograd.grad"
HINT = "call it outside the compiled function"
FLAGS = ("retain_graph", "create_graph", "allow_unused", "materialize_grads")


@special(torch.autograd.grad)
def _grad(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    try:
        given = inspect.signature(torch.autograd.grad).bind(*args, **kwargs).arguments
    except TypeError:
        raise Break(f"{GRAD} of these arguments") from None
    flags = {name: given[name] for name in FLAGS if name in given}
    plain = all(value is None or type(value) is bool for value in flags.values())
    if not plain or given.get("is_grads_batched") or not given.get("only_inputs", True):
        raise Break(f"{GRAD} with is_grads_batched, or without only_inputs", HINT)
    check_place(vm, GRAD)
    tracer = vm.tracer
    outputs, inputs = (tensors_of(vm, given[name], GRAD) for name in ("outputs", "inputs"))
    cotangents = given.get("grad_outputs")
    if cotangents is not None:
        cotangents = tensors_of(vm, cotangents, GRAD, optional=True)
    if any(tracer.source_of(tensor) is not None for tensor in inputs):
        _check_outside(vm, inputs)
    tracer.grad_questions += 1
    made = differentiated(vm, outputs, inputs, cotangents, flags, GRAD)
    tracer.record(torch.autograd.grad, (outputs, inputs, cotangents), flags, made)
    return made


def check_place(vm: Interpreter, what: str) -> None:
    """Break where the engine would go back over more, or less, than the graph."""
    tracer = vm.tracer
    if isinstance(tracer, transforms.Body) or tracer.open_scopes or tracer.region is not None:
        raise Break(f"{what} inside a transform or a checkpoint, or in inference mode", HINT)
    if vm.has_regions and not vm.symbols.whole and any("opaque" in node.meta for node in tracer.graph.nodes):
        raise Break(f"{what} back over an operator that runs as it is, around which ATen graphs are cut", HINT)


def tensors_of(vm: Interpreter, value: Any, what: str, optional: bool = False) -> tuple[Any, ...]:
    """One tensor, or some in a container, as a tuple; ``optional``: or None."""
    made = (value,) if isinstance(value, torch.Tensor) else vm.native(tuple, iterable(vm, value))
    if not all(type(t) is torch_private.FakeTensor or (optional and t is None) for t in made):
        raise Break(f"{what} of what are no plain tensors", HINT)
    if vm.tracer.rules.among(made):
        raise Break(f"{what} of a tensor whose class has rules of its own", HINT)
    return made


def _check_outside(vm: Interpreter, inputs: tuple[Any, ...]) -> None:
    """No tensor from outside may have been computed of ``inputs``, and no hook may wait there."""
    for fake in vm.tracer.outside():
        with torch_private.DisableTorchFunction():
            wanted = fake.requires_grad
        if not wanted:
            continue
        real, source = vm.tracer.adopted[id(fake)]
        if not metadata.ask(real, "is_leaf"):
            raise Break(f"{GRAD} beside a tensor from outside that was computed of others", HINT)
        vm.world.guard(source.attr("is_leaf"), "equals", True)
    for fake in inputs:
        if (found := vm.tracer.adopted.get(id(fake))) is not None:
            real, source = found
            with torch_private.without_modes():
                hooks = real._backward_hooks
            if hooks is not None:
                raise Break(f"{GRAD} of a tensor that has hooks", HINT)
            vm.world.guard(source.attr("_backward_hooks"), "is", None)


def differentiated(
    vm: Interpreter, outputs: tuple[Any, ...], inputs: Any, cotangents: Any, flags: dict[str, Any], what: str
) -> tuple[Any, ...]:
    """``torch.autograd.grad`` of the stand-ins, which uses their graph up: nothing may break after that."""
    tracer = vm.tracer
    if flags.get("create_graph") and tracer.tape.once:
        raise Break(f"{what} with create_graph=True beside a function marked with once_differentiable", HINT)
    tracer.pause = True
    try:
        found: tuple[Any, ...] = tracer.run(torch.autograd.grad, (outputs, inputs, cotangents), flags)
    except Break as reason:
        told = reason.reason.replace("torch.autograd.grad", what, 1)
        raise Restart(vm.break_step(), told, reason.hint, vm.user_stack()) from None
    finally:
        tracer.pause = False
    if any(gradient is not None and gradient.layout is not torch.strided for gradient in found):
        raise Restart(vm.break_step(), f"{what} gives sparse gradients", "leave out sparse=True to compile it")
    retain = flags.get("retain_graph")
    tracer.tape.goes_back |= not (flags.get("create_graph") if retain is None else retain)
    return found
