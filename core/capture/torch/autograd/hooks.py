"""``Tensor.register_hook`` on what the frame has computed: one node around a graph of the hook.

It runs when the gradient is there. Of the hook's code the same is asked as of an ``autograd.Function``'s; besides, it
may read variables around it that keep their values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture import policy
from jitney.capture.codegen.rebuild import RULES, Rebuilder
from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.autograd import transforms
from jitney.capture.torch.autograd.functions import HOOK_HINT, Reader
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

HOOK = "Tensor.register_hook()"


@dataclass(frozen=True, eq=False)
class Handle:
    """What ``register_hook`` gives, which nobody may ask anything. ``step``: where it was called."""

    step: int


def remove_hook(handle: Handle, /) -> None:
    """``handle.remove()``, which capture interprets specially."""
    raise NotImplementedError


@special(remove_hook)
def _remove_hook(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    raise Restart(args[0].step, f"what {HOOK} returns is used", HOOK_HINT, vm.user_stack())


def _rebuild(rebuilder: Rebuilder, handle: Handle) -> str:
    raise Restart(handle.step, f"what {HOOK} returns is needed after the graph", HOOK_HINT)


RULES[Handle] = _rebuild


@special(torch.Tensor.register_hook)
def _register_hook(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """A node that registers a graph of the hook on a tensor that the frame has computed."""
    if len(args) != 2 or kwargs or type(args[0]) is not torch_private.FakeTensor:
        raise Break(f"{HOOK} of these arguments", HOOK_HINT)
    tensor, hook = args
    if vm.tracer.source_of(tensor) is not None or isinstance(vm.tracer, transforms.Body):
        raise Break(f"{HOOK} of a tensor that the frame has not computed", HOOK_HINT)
    if not tensor.requires_grad:
        return vm.raise_user(RuntimeError("cannot register a hook on a tensor that doesn't require gradient"))
    with torch_private.DisableTorchFunction():  # a view may be made again of what it is a view of
        fits = not tensor.is_leaf and not (vm.has_regions and tensor._is_view())
    if not fits:
        raise Break(f"{HOOK} of a leaf or a view", HOOK_HINT)
    name = getattr(hook, "__qualname__", type(hook).__qualname__)
    if not policy.is_torch_op(hook):
        Reader(vm, f"the hook {name}", for_gradient=True).function(hook)
    step, asked = vm.break_step(), vm.tracer.grad_questions
    with torch.no_grad():
        with vm.tracer.fake_mode, torch_private.DisableTorchFunction():
            gradient = torch.empty_like(tensor)
        body = transforms.application(vm, "hook", hook, (gradient,), {}, what=f"the hook {name}").body
    if vm.tracer.grad_questions != asked:  # there are in ``create_graph=True``
        raise Break(f"the hook {name} asks whether there are gradients", HOOK_HINT)
    if torch_private.tree_unflatten([0] * body.result.num_leaves, body.result) != 0:
        raise Break(f"the hook {name} returns more than a tensor", HOOK_HINT)

    def register(tensor: torch.Tensor, *lifted: Any) -> None:
        if tensor.requires_grad:
            tensor.register_hook(body.function(lifted))

    transforms.named("register_hook", register, (body,))
    vm.tracer.record(register, (tensor, *body.lifted), {}, None)
    return vm.world.mark_fresh(Handle(step))
