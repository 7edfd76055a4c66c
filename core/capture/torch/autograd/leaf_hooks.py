"""Hooks on leaves from outside, where ``backward()`` arrives: interpreted in the order in which the engine runs them.

All gradients are there before the first hook, so what it writes to is not read by what the engine would compute after
it: the engine raises where it is, but for writes that nobody counts (``.data``), which are a graph break.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter.signals import Break, Restart
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

HINT = "take the hook off, or call backward() outside the compiled function"
# The attributes of a tensor that hold its hooks: before a gradient is accumulated, and after.
BEFORE, AFTER = "_backward_hooks", "_post_accumulate_grad_hooks"


# Interpreted.


def _values(hooks: Any) -> list[Any]:
    return list(hooks.values())


def _called(hook: Callable[..., Any], tensor: torch.Tensor) -> Any:
    with torch.no_grad():
        return hook(tensor)


def of_leaf(vm: Interpreter, leaf: Any, when: str) -> list[Any]:
    """The hooks of a leaf from outside, guarded."""
    real, source = vm.tracer.adopted[id(leaf)]
    with torch_private.without_modes():
        found = getattr(real, when)
    if found is None:
        vm.world.guard(source.attr(when), "is", None)
        return []
    values: list[Any] = vm.call(_values, vm.world.wrap(found, source.attr(when)))
    return values


@contextlib.contextmanager
def watched(leaves: tuple[Any, ...]) -> Iterator[list[int]]:
    """The places of these stand-ins in the order in which the engine, run in the block, has their gradients ready."""
    order: list[int] = []
    with torch_private.DisableTorchFunction():
        handles = [leaf.register_hook(lambda _, at=at: order.append(at)) for at, leaf in enumerate(leaves)]
    try:
        yield order
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def without(leaves: tuple[torch.Tensor, ...]) -> Iterator[None]:
    """Leaves without their hooks, while a graph goes back that has them as operations of its own."""
    hooked = [(leaf, leaf._backward_hooks) for leaf in leaves if leaf._backward_hooks]
    for leaf, _ in hooked:
        leaf._backward_hooks = None
    try:
        yield
    finally:
        for leaf, hooks in hooked:
            leaf._backward_hooks = hooks


def run(vm: Interpreter, what: str, hooks: list[Any], tensor: Any, step: int, answers: bool) -> Any:
    """Call hooks one after the other; with ``answers``, the last one's answer, or the tensor where there is none."""
    tracer = vm.tracer
    for hook in hooks:
        writes, last = tracer.data_writes, next(reversed(tracer.graph.nodes), None)
        try:
            answer = vm.call(_called, hook, tensor)
        except Break as reason:
            raise Restart(
                step, f"{what} to a tensor with a hook: {reason.reason}", reason.hint, vm.user_stack()
            ) from None
        nodes = itertools.takewhile(lambda node: node is not last, reversed(tracer.graph.nodes))  # noqa: B023
        if tracer.data_writes != writes or any(node.target is getattr and node.args[1] == "data" for node in nodes):
            raise Restart(step, f"{what} to a tensor whose hook writes past autograd", HINT)
        if answer is None:
            continue
        if not answers or not _fits(answer, tensor):  # the engine raises, but for a gradient that it can make fit
            raise Restart(
                step, f"{what} to a tensor whose hook gives something else than a gradient like its own", HINT
            )
        tensor = answer
    return tensor


def _fits(answer: Any, gradient: Any) -> bool:
    if type(answer) is not torch_private.FakeTensor:
        return False
    with torch_private.DisableTorchFunction():
        facts = [(t.shape, t.dtype, t.device, t.layout) for t in (answer, gradient)]
    return facts[0] == facts[1]
