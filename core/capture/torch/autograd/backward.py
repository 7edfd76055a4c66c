"""``Tensor.backward()`` of what the frame has computed: one node for the gradients, then writes to ``.grad``.

The engine's graph of the stand-ins says which leaves there are. Their gradients are results of the graph like others;
what autograd's ``AccumulateGrad`` does with each is done here: the first one becomes ``.grad``, others are added to it.
What was computed before the frame is on nobody's tape here: where a path leads to it, the graph breaks.
"""

from __future__ import annotations

import inspect
import operator
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture import metadata
from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch import stand_in_attributes
from jitney.capture.torch.autograd import leaf_hooks, tape
from jitney.capture.torch.autograd.gradients import check_place, differentiated, tensors_of
from jitney.capture.torch.distributed import data_parallel
from jitney.guards.tensor_attributes import HOOKLESS, has_hooks
from jitney.torch_compat import torch_private
from jitney.torch_compat.autograd_engine import holds_accumulator, plain_engine, warn_of_cycles

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

BACKWARD = "backward()"
HINT = "call it outside the compiled function"
DDP = data_parallel.DDP
HOLDERS = "DistributedDataParallel does, and autograd graphs that are still alive"
IS_LEAF = "{v}.is_leaf"
Hooks = dict[
    int, tuple[list[Any], list[Any]]
]  # at which leaf -> its hooks before and after the gradient is accumulated


# ------------------------------------------------------------------ in the graph


def backward(
    outputs: tuple[torch.Tensor, ...],
    cotangents: tuple[torch.Tensor | None, ...] | None,
    leaves: tuple[torch.Tensor, ...],
    shared: tuple[int, ...],
    retain_graph: bool | None,
    create_graph: bool,
) -> tuple[torch.Tensor | None, ...]:
    """The gradients of ``leaves`` as their first ``.grad``; ``shared``: of which somebody else has the tensor, too."""
    with leaf_hooks.without(leaves):
        found = torch.autograd.grad(
            outputs, leaves, cotangents, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True
        )
    pairs = enumerate(zip(found, leaves, strict=True))
    return tuple([None if g is None else _landed(g, leaf, at in shared) for at, (g, leaf) in pairs])


def _landed(gradient: torch.Tensor, leaf: torch.Tensor, shared: bool) -> torch.Tensor:
    """A gradient in memory of its own that is laid out like the leaf, as ``AccumulateGrad`` would have it."""
    if not shared and _laid_out(gradient, leaf):
        return gradient if gradient.requires_grad else gradient.detach()  # which is no view, whatever it was before
    if leaf.is_contiguous() or not _is_dense(leaf):
        return gradient.clone(memory_format=torch.contiguous_format)
    return gradient.new_empty_strided(leaf.size(), leaf.stride()).copy_(gradient)


def _laid_out(gradient: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Does it obey the gradient layout contract (``torch/csrc/autograd/utils/grad_layout_contract.h``)?"""
    if not _is_dense(leaf):
        return gradient.is_contiguous()
    each = zip(gradient.size(), gradient.stride(), leaf.stride(), strict=True)
    return all(stride != 0 if size == 1 else stride == wanted for size, stride, wanted in each)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Do its elements lie one after the other, in whatever order of dimensions?"""
    if tensor.is_contiguous():
        return True
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


# ------------------------------------------------------------------ capture


@special(torch.Tensor.backward)
def _of_tensor(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    given = _bound(torch.Tensor.backward, args, kwargs)
    _backward(vm, given["self"], given["gradient"], given)


@special(torch.autograd.backward)
def _of_tensors(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    given = _bound(torch.autograd.backward, args, kwargs)
    if given["grad_variables"] is not None:
        raise Break(f"{BACKWARD} with grad_variables", "give them as grad_tensors")
    _backward(vm, given["tensors"], given["grad_tensors"], given)


def _bound(function: Any, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        raise Break(f"{BACKWARD} of these arguments", "") from None
    bound.apply_defaults()
    return bound.arguments


def _backward(vm: Interpreter, tensors: Any, cotangents: Any, given: dict[str, Any]) -> None:
    retain, create, inputs = given["retain_graph"], given["create_graph"], given["inputs"]
    if not all(flag is None or type(flag) is bool for flag in (retain, create)):
        raise Break(f"{BACKWARD} with flags that are no plain ones", HINT)
    check_place(vm, BACKWARD)
    if create and not torch.is_grad_enabled():
        raise Break(f"{BACKWARD} with create_graph=True, where no gradients are computed", HINT)
    if not plain_engine():
        raise Break(f"{BACKWARD} under anomaly detection or hooks on saved tensors", HINT)
    vm.world.guard(vm.world.const(plain_engine), "true", "{v}()")
    outputs = tensors_of(vm, tensors, BACKWARD)
    if cotangents is not None:
        cotangents = tensors_of(vm, cotangents, BACKWARD, optional=True)
    leaves = _leaves(vm, outputs, None if inputs is None else tensors_of(vm, inputs, BACKWARD))
    before = [stand_in_attributes.tensor_attr(vm, leaf, "grad") for leaf in leaves]
    if not create and any(old is not None and _requires_grad(old) for old in before):
        raise Break(f"{BACKWARD} adds to a gradient that requires grad itself", HINT)
    flags = {"retain_graph": retain, "create_graph": bool(create), "allow_unused": True}
    hooks, step = _hooks(vm, leaves), vm.break_step()
    if hooks and len({leaf.device for leaf in leaves}) > 1:
        raise Break(f"{BACKWARD} to tensors on several devices that have hooks: their order is not known", HINT)
    reduces = vm.tracer.tape.reductions
    if (hooks and (create or reduces)) or (create and reduces):
        raise Break(f"{BACKWARD} with create_graph=True or {DDP}, to a tensor that has hooks or is {DDP}'s", HINT)
    with leaf_hooks.watched(leaves if hooks else ()) as order:
        raw = differentiated(vm, outputs, leaves, cotangents, flags, BACKWARD)
    shared = _shared(vm, raw, leaves)
    if any((at in shared or raw[at] is None) and before for at, (before, _) in hooks.items()):
        raise Restart(step, f"{BACKWARD} to a tensor with hooks whose gradient is also another's, or missing", HINT)
    arguments, again = (outputs, cotangents, leaves, shared, retain), {"create_graph": bool(create)}
    vm.tracer.pause = True
    try:
        made = tuple([
            None if g is None else vm.tracer.run(_landed, (g, leaf, at in shared), {})
            for at, (g, leaf) in enumerate(zip(raw, leaves, strict=True))
        ])  # fmt: skip
    finally:
        vm.tracer.pause = False
    vm.tracer.record(backward, arguments, again, made)
    if create:
        warn_of_cycles()
    if hooks:
        _arrive(vm, leaves, made, [*dict.fromkeys(order)], hooks, step)
        return
    for leaf, old, new in zip(leaves, before, made, strict=True):
        if new is not None:
            _accumulate(vm, leaf, old, new, bool(create))
    data_parallel.reduce(vm, leaves, made)


def _hooks(vm: Interpreter, leaves: tuple[Any, ...]) -> Hooks:
    """The hooks of leaves that have any."""
    found = {}
    for at, leaf in enumerate(leaves):
        if id(leaf) in vm.tracer.adopted and not _is_plain(vm.tracer.adopted[id(leaf)][0]):
            before, after = (leaf_hooks.of_leaf(vm, leaf, when) for when in (leaf_hooks.BEFORE, leaf_hooks.AFTER))
            if before or after:
                found[at] = before, after
    return found


def _arrive(
    vm: Interpreter, leaves: tuple[Any, ...], gradients: tuple[Any, ...], order: list[int], hooks: Hooks, step: int
) -> None:
    """Have gradients accumulated one after the other, as the engine has them ready, with the leaves' hooks."""
    for at in order:
        leaf, new = leaves[at], gradients[at]
        before, after = hooks.get(at, ([], []))
        if before:
            answer = leaf_hooks.run(vm, BACKWARD, before, new, step, answers=True)
            _shared(vm, (answer,), (leaf,))
            with torch.no_grad():  # the hook may have kept its own
                new = vm.tracer.run(_landed, (answer, leaf, True), {})
        old = stand_in_attributes.tensor_attr(vm, leaf, "grad")
        if old is not None and _requires_grad(old):
            raise Restart(step, f"{BACKWARD} adds to a gradient that requires grad itself", HINT)
        _accumulate(vm, leaf, old, new, create=False)
        leaf_hooks.run(vm, BACKWARD, after, leaf, step, answers=False)


def _accumulate(vm: Interpreter, leaf: Any, old: Any, new: Any, create: bool) -> None:
    """What ``AccumulateGrad`` does with a gradient."""
    if old is not None and not create:
        vm.native(torch.Tensor.add_, old, new)
        return
    total = new if old is None else vm.native(operator.add, old, new)
    stand_in_attributes.store_tensor_attr(vm, leaf, "grad", total)


def _requires_grad(tensor: Any) -> bool:
    with torch_private.DisableTorchFunction():
        return bool(tensor.requires_grad)


def _leaves(vm: Interpreter, outputs: tuple[Any, ...], inputs: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """The leaves that get gradients: the frame's own, and those from outside, which stay leaves without hooks."""
    tracer = vm.tracer
    reached = tape.leaves(outputs)
    known = all(leaf is not None and (id(leaf) in tracer.nodes or id(leaf) in tracer.adopted) for leaf in reached)
    outside = [tracer.adopted[id(leaf)] for leaf in reached if id(leaf) in tracer.adopted]
    if not known or not all(metadata.ask(real, "is_leaf") for real, _ in outside):
        raise Break(f"{BACKWARD} through a tensor from outside that was computed of others", HINT)
    found = reached if inputs is None else list(dict.fromkeys(inputs))
    plain = all(type(leaf) is torch_private.FakeTensor and id(leaf) not in tracer.rules.classes for leaf in found)
    if not found or not plain:
        raise Break(f"{BACKWARD} without a tensor that it goes back to, or to one of a subclass", HINT)
    with torch_private.DisableTorchFunction():
        if not all(leaf.is_leaf and leaf.requires_grad for leaf in found):
            raise Break(f"{BACKWARD} with inputs that are no leaves", HINT)
    for leaf in found:
        if id(leaf) in tracer.adopted:
            _check_leaf(vm, leaf)
    for _, source in outside if inputs is not None else ():
        vm.world.guard(source.attr("is_leaf"), "equals", True)
    return tuple(found)


def _check_leaf(vm: Interpreter, leaf: Any) -> None:
    """Nobody may wait for the gradient of a leaf from outside."""
    real, source = vm.tracer.adopted[id(leaf)]
    with torch_private.without_modes():
        if getattr(real, "grad_dtype", real.dtype) is not real.dtype:
            raise Break(f"{BACKWARD} to a tensor whose gradients are to have another dtype", HINT)
        known = vm.tracer.tape.accumulated | vm.tracer.tape.held
        if id(leaf) not in known and _holds_accumulator(real):
            raise Break(f"{BACKWARD}, and somebody holds the place where gradients of a leaf are accumulated", HOLDERS)
    vm.tracer.tape.accumulated.add(id(leaf))
    vm.world.guard(source, "true", IS_LEAF)
    if _is_plain(real):
        vm.world.guard(source, HOOKLESS)


def _holds_accumulator(real: torch.Tensor) -> bool:
    """The same of a leaf that requires grad in compiled code only, of which autograd tells nothing before."""
    if real.requires_grad:
        return holds_accumulator(real)
    real.requires_grad_(True)
    try:
        return holds_accumulator(real)
    finally:
        real.requires_grad_(False)


def _is_plain(real: torch.Tensor) -> bool:
    """Has the tensor no place for hooks?"""
    with torch_private.without_modes():
        return not has_hooks(real)


def _shared(vm: Interpreter, gradients: Any, leaves: tuple[Any, ...]) -> tuple[int, ...]:
    """At which places is the very tensor somebody else's, too? Eager copies those, but keeps views as they are."""
    found = [(at, g) for at, g in enumerate(gradients) if g is not None]
    with torch_private.DisableTorchFunction():
        taken = [(at, g) for at, g in found if _laid_out(g, leaves[at])]
        memory = {at: metadata.storage(g) for at, g in taken}
    often, places = Counter(id(g) for _, g in found), set(memory.values())
    known: dict[int, list[Any]] = {}
    for other in vm.tracer.known():
        if type(other) is torch_private.FakeTensor and (place := metadata.storage(other)) in places:
            known.setdefault(place, []).append(other)
    for at, g in taken:
        others = [*known.get(memory[at], ()), *(other for i, other in taken if i != at and memory[i] == memory[at])]
        if any(other is not g for other in others):
            raise Restart(vm.break_step(), f"{BACKWARD} gives a gradient that is a view of something else", HINT)
        if others:
            often[id(g)] += 1
    return tuple([at for at, g in found if often[id(g)] > 1])
