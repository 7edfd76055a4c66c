"""What the program's own code does while the engine runs backward: autograd functions and hooks.

They may write to the gradient that they are given, or to what the forward has kept. In eager whoever holds that tensor
sees the write, in a functional graph nobody does. And they need not be linear: what they do depends on which gradients
they are called with, and whether they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from jitney.aot.signals import NotSplit
from jitney.aot.trace import functionalization
from jitney.aot.trace.results import root_of
from jitney.aot.trace.tracer import BACKWARD, FORWARD, AtenTracer


class BackwardCode(TorchFunctionMode):
    """Sees what Python calls meanwhile: the engine's own operators do not come by."""

    def __init__(self, tracer: AtenTracer) -> None:
        super().__init__()
        self.tracer = tracer
        self.written = ""  # the first operation that has written to what is older than the backward

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        before = [(value, functionalization.unwrapped(value)) for value in functionalization.tensors((args, kwargs))]
        result = func(*args, **kwargs)
        for value, inner in before:
            if functionalization.unwrapped(value) is not inner and self._is_older(inner):
                self.written = self.written or getattr(func, "__name__", str(func))
        return result

    def _is_older(self, inner: torch.Tensor) -> bool:
        node = self.tracer.nodes.get(id(inner))
        root = None if node is None else root_of(node)
        return root is None or root.op != "call_function" or root.meta["phase"] is FORWARD

    def refuse(self) -> None:
        """Raise ``NotSplit`` if there was such a write: the program may have caught what was raised at it."""
        if self.written:
            raise NotSplit(f"its backward writes to what is older ({self.written})")


def refuse_partly_called(
    graph: fx.Graph, results: Sequence[torch.Tensor], tangents: Collection[fx.Node], gradients: Iterable[Any]
) -> None:
    """Raise ``NotSplit`` if it is not known what happens in a backward in which some results have no gradient.

    Args:
        graph: of forward and backward.
        results: those that the engine started at.
        tangents: their gradients.
        gradients: of the inputs, None where there is none.
    """
    if len(results) < 2:
        return
    for places in _arriving(results).values():
        first, *others = places.values()
        if any(other != first for other in others):
            raise NotSplit("which gradients an autograd.Function gets depends on which results have one")
    if _has_constant(graph, tangents, gradients):
        raise NotSplit("a gradient that is made up where a result has one, of no other gradient")


def _arriving(results: Sequence[torch.Tensor]) -> dict[Any, dict[int, set[int]]]:
    """By node of an autograd function, and by place there: from which results gradients arrive."""
    found: dict[Any, dict[int, set[int]]] = {}
    if not any(_is_function(node) for node, _ in _edges(results)):  # mostly
        return found
    for at, result in enumerate(results):
        for node, place in _edges([result]):
            if _is_function(node):
                found.setdefault(node, {}).setdefault(place, set()).add(at)
    return found


def _edges(results: Iterable[torch.Tensor]) -> set[tuple[Any, int]]:
    """Nodes of the engine's at which gradients of these may arrive, and where there."""
    found: set[tuple[Any, int]] = set()
    todo: list[tuple[Any, int]] = [(result.grad_fn, result.output_nr) for result in results]
    while todo:
        edge = todo.pop()
        if edge[0] is not None and edge not in found:
            found.add(edge)
            todo += edge[0].next_functions
    return found


def _is_function(node: Any) -> bool:
    return isinstance(node, torch.autograd.function.BackwardCFunction) and not functionalization.enters(node)


def _has_constant(graph: fx.Graph, tangents: Collection[fx.Node], gradients: Iterable[Any]) -> bool:
    """Is a gradient, or a contribution to one, computed of no tangent? It is not told of which result it comes.

    Functions and hooks of the program's may do so, and some formulas of torch's, whose zeros have nothing to do with
    what arrives: those of ``sgn()`` and ``pow(0)``.
    """
    dependent = set(tangents)
    for node in graph.nodes:
        known = [a in dependent for a in node.all_input_nodes]
        if any(known):
            dependent.add(node)
            if node.target is torch.ops.aten.add.Tensor and node.meta["phase"] is BACKWARD and not all(known):
                return True
    return any(g is not None and g not in dependent for g in gradients)
