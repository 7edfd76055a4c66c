"""``torch.utils.checkpoint``: where the backend splits forward and backward, its function is a region of the graph.

The operations of a region carry its number in ``meta["checkpoint"]``; AOT computes them again in the backward. For a
backend that runs the captured graph as it is, the call is one operation: torch's own, around a graph of the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.capture.metadata import version_of
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.autograd import transforms
from jitney.capture.world.writes import writes
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

REASON = "torch.utils.checkpoint runs its function again in the backward"
OPTIONS = {
    "context_fn": torch.utils.checkpoint.noop_context_fn,
    "determinism_check": "default",
    "debug": False,
    "early_stop": True,
    "preserve_rng_state": True,
}


@special(torch.utils.checkpoint.checkpoint)
def _checkpoint(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    reentrant = kwargs.get("use_reentrant")
    if type(reentrant) is not bool or not args:
        raise Break(REASON, "pass use_reentrant=False")
    kwargs = {k: v for k, v in kwargs.items() if k != "use_reentrant"}
    for name, plain in OPTIONS.items():
        if kwargs.pop(name, plain) not in (plain, "none"):
            raise Break(f"{REASON}, here with {name}=", "call it outside the compiled function")
    asked = vm.tracer.grad_questions
    result = _region(vm, args, kwargs, reentrant) if vm.has_regions else _as_operation(vm, args, kwargs, reentrant)
    if reentrant and vm.tracer.grad_questions != asked:  # there is no gradient in its first run, but in its second
        raise Break(f"{REASON}, and it asks whether there are gradients", "pass use_reentrant=False")
    return result


def _region(vm: Interpreter, args: Args, kwargs: Kwargs, reentrant: bool) -> Any:
    before, tensors = writes(vm), vm.tracer.snapshot()
    outer, vm.tracer.region = vm.tracer.region, vm.tracer.new_region()
    try:
        result = vm.call(args[0], *args[1:], **kwargs)
    finally:
        vm.tracer.region = outer
    if writes(vm) != before or any(version_of(t) != version for t, version in tensors):
        raise Break(f"{REASON}, and it changes something, which would then happen twice", "return what it computes")
    if reentrant and torch.is_grad_enabled():
        made = result if type(result) is tuple else (result,)
        with torch_private.DisableTorchFunction():
            given = any(is_stand_in(a) and a.requires_grad for a in args[1:])
            fits = given and all(is_stand_in(t) and t.requires_grad for t in made)
        if not fits:
            raise Break(
                f"{REASON}, here without gradients of its arguments, or of a result", "pass use_reentrant=False"
            )
    return result


def _as_operation(vm: Interpreter, args: Args, kwargs: Kwargs, reentrant: bool) -> Any:
    def run(function: Callable[..., Any], whole: tuple[Any, ...], named: dict[str, Any], more: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(function, *whole, use_reentrant=reentrant, **named)

    fn, *given = args
    what = "torch.utils.checkpoint"  # what is reentrant gives tensors of its own
    made = transforms.application(vm, "checkpoint", fn, given, kwargs, what=what, itself=True, whole=not reentrant)
    return made.record(vm, run)
