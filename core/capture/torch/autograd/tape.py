"""What autograd has noted of stand-ins, which is what it will note of the tensors: the leaves, and what is used up."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.kinds import is_stand_in
from jitney.guards import Source
from jitney.guards.tensors import bases_of
from jitney.torch_compat import torch_private
from jitney.torch_compat.views import has_lost_history

TOGGLED = "requires_grad_() on a tensor from outside"
TOGGLED_VIEW = f"{TOGGLED}, to which there is a view"
TOGGLED_HINT = "call it outside compiled code, or give back nothing that was computed of it"
UNREDUCED = "DistributedDataParallel is called, and backward() is not"
UNREDUCED_HINT = "compile the whole step, or jitney.compile(ddp)"
STALE_VIEW = "a view that was made in no_grad, and whose base was written to since"
USED_UP = "a second time"  # in what the engine says of a graph that it has gone through
# torch's functions that raise nothing, whatever the numbers are: what optimizers and those who clip gradients call.
QUIET = frozenset(
    "_set_grad_enabled abs add add_ addcdiv addcdiv_ addcmul addcmul_ clamp clamp_ clone copy_ detach detach_ div "
    "div_ eq fill_ float full_like ge gt item le lerp lerp_ linalg_vector_norm lt matmul max maximum mean "
    "min minimum mul mul_ ne neg neg_ new_zeros norm ones_like pow reciprocal rsqrt rsqrt_ sign sqrt sqrt_ square "
    "square_ stack sub sub_ sum tensor to truediv vector_norm where zero_ zeros zeros_like".split()
)


@dataclass
class Tape:
    """What a capture knows of the gradients that its graph computes.

    Args:
        gradients: id of a leaf that the frame has made -> its ``.grad``.
        cleared: tensors from outside whose ``.grad`` is dropped before anything is computed.
        accumulated: ids of leaves from outside to which ``backward()`` was called.
        goes_back: does the graph go back over its own operations, which uses them up?
        once: has it a function that is marked with ``once_differentiable``?
        held: ids of leaves whose gradients a ``DistributedDataParallel`` waits for, where it is called.
        reductions: what it is to average at the next ``backward()``.
        toggles: may it change whether a leaf from outside requires grad?
        toggled: leaves from outside whose ``requires_grad`` has changed, and the step at which it did first.
    """

    gradients: dict[int, Any] = field(default_factory=dict)
    cleared: list[Source] = field(default_factory=list)
    accumulated: set[int] = field(default_factory=set)
    goes_back: bool = False
    once: bool = False
    held: set[int] = field(default_factory=set)
    reductions: list[Any] = field(default_factory=list)
    toggles: bool = True
    toggled: dict[int, tuple[Any, int]] = field(default_factory=dict)

    def toggle(self, tracer: Any, leaf: Any, step: int) -> None:
        """``requires_grad`` of a leaf from outside changes, for a while; breaks where it may not."""
        real = tracer.adopted[id(leaf)][0]
        plain = type(leaf) is torch_private.FakeTensor and self.toggles
        plain = plain and id(leaf) not in tracer.rules.classes  # of which the graph has another object, that is no leaf
        with torch_private.without_modes():
            fits = plain and real.is_leaf and not real.is_inference()
        if not fits or tracer.open_scopes or tracer.region is not None:
            raise Break(TOGGLED, TOGGLED_HINT)
        self.toggled.setdefault(id(leaf), (leaf, step))
        tracer.data_writes += 1

    def check_view(self, tracer: Any, real: torch.Tensor) -> None:
        """Break at a view from outside of which autograd, or the tape, cannot say whether it requires grad."""
        try:
            _ = real.grad_fn
        except RuntimeError:
            raise Break(STALE_VIEW, "make the view again after the write") from None
        for leaf, step in self.toggled.values():
            if tracer.adopted[id(leaf)][0] is real._base:
                raise Restart(step, TOGGLED_VIEW, TOGGLED_HINT)

    def clears_first(self, nodes: Iterable[Any], backward: Any) -> bool:
        """May old gradients go before the graph runs? Not if it may raise once there are new ones."""
        calls = [node for node in nodes if node.op.startswith("call")]
        first = next((at for at, node in enumerate(calls) if node.target is backward), len(calls))
        return all(node.target is backward or _is_quiet(node) for node in calls[first:])

    def check_reduced(self) -> None:
        """At its end, a graph has averaged the gradients of each forward of a ``DistributedDataParallel``."""
        for one in self.reductions:
            raise Restart(one.step, UNREDUCED, UNREDUCED_HINT)

    def toggle_back(self, tracer: Any, outputs: list[Any]) -> list[tuple[Source, bool]]:
        """At its end, a graph leaves ``requires_grad`` as it was; what it is to be then is written like all else.

        A compiled graph has no results that lead back to what did not require grad when it was called.
        """
        written = []
        stand_ins = tuple(filter(is_stand_in, outputs))
        bases = bases_of((*stand_ins, *(real for real, _ in tracer.adopted.values()))) if self.toggled else set()
        for leaf, step in self.toggled.values():
            if not bases.isdisjoint((id(leaf), id(tracer.adopted[id(leaf)][0]))) or _is_viewed(tracer, leaf):
                raise Restart(step, TOGGLED_VIEW, TOGGLED_HINT)
        reached = {id(leaf) for leaf in leaves(stand_ins)} if self.toggled else set()
        for leaf, step in self.toggled.values():
            real, source = tracer.adopted[id(leaf)]
            with torch_private.without_modes():
                before, after = real.requires_grad, leaf.requires_grad
                if not before and id(leaf) in reached:
                    raise Restart(step, TOGGLED, TOGGLED_HINT)
                if before is after:
                    continue
                leaf.requires_grad_(before)
            node = tracer.graph.call_method("requires_grad_", (tracer.node_of(leaf), before))
            node.meta.update(example_value=leaf, user_stack=())
            written.append((source, after))
        return written


def _is_viewed(tracer: Any, leaf: Any) -> bool:
    """Has the frame views of a leaf that is a view? They ask what both are views of, in a functional graph the leaf."""
    with torch_private.DisableTorchFunction():
        if not tracer.adopted[id(leaf)][0]._is_view():
            return False
        base = leaf if leaf._base is None else leaf._base
        return any(other is not leaf and other._base is base for other in filter(is_stand_in, tracer.known()))


def _is_quiet(node: fx.Node) -> bool:
    if node.target is operator.getitem:  # a tensor may hold indices that are out of range
        return not any(isinstance(leaf, fx.Node) for leaf in torch_private.tree_flatten(node.args[1])[0])
    if isinstance(node.target, str):
        return node.target in QUIET
    name, module = (getattr(node.target, key, None) or "" for key in ("__name__", "__module__"))
    own = module.partition(".")[0] in ("", "torch", "_operator")  # who knows what a function of that name may do else
    return own and (name in QUIET or name.startswith("_foreach_"))


def leaves(outputs: tuple[Any, ...]) -> list[Any]:
    """The stand-ins at which the engine arrives from these; None for one that Python does not know."""
    found: dict[int, Any] = {}
    with torch_private.DisableTorchFunction():
        outputs = tuple(output for output in outputs if not has_lost_history(output))
        for output in outputs:
            if output.requires_grad and output.grad_fn is None:
                found[id(output)] = output
        nodes = [output.grad_fn for output in outputs if output.grad_fn is not None]
        seen = set(nodes)
        while nodes:
            for following, _ in nodes.pop().next_functions:
                if following is None or following in seen:
                    continue
                seen.add(following)
                if following.name() == "torch::autograd::AccumulateGrad":
                    found.setdefault(id(following.variable), following.variable)
                else:
                    nodes.append(following)
    return list(found.values())


def used_up(tracer: Any, tensor: Any) -> bool:
    """Would every way back from this stand-in raise, since the graph has been gone through?"""
    with torch_private.DisableTorchFunction():
        if not tracer.tape.goes_back or type(tensor) is not torch_private.FakeTensor or tensor.grad_fn is None:
            return False
        found = leaves((tensor,))
        return bool(found) and None not in found and all(_raises(tracer, tensor, leaf) for leaf in found)


def _raises(tracer: Any, tensor: Any, leaf: Any) -> bool:
    with tracer.fake_mode:
        cotangent = torch.empty_like(tensor).detach()
        frozen = not leaf.requires_grad  # since then
        leaf.requires_grad_(True)
        try:
            torch.autograd.grad(tensor, leaf, cotangent, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            return USED_UP in str(error)
        finally:
            leaf.requires_grad_(not frozen)
    return False


def detached(tracer: Any, value: Any) -> Any:
    """A stand-in without the history of this one, as another result of the graph."""
    with torch_private.DisableTorchFunction():
        made = value.detach()
    tracer.record(torch.Tensor.detach, (value,), {}, made)
    return made
