"""What goes on around autograd's engine besides gradients: anomaly detection, hooks, who waits for a gradient."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from jitney.torch_compat import torch_private

_MARK = "jitney: is this node kept?"
USED_UP = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


def plain_engine() -> bool:
    """Does nobody look for NaN in gradients, nor at what autograd saves?"""
    return not torch.is_anomaly_enabled() and torch_private.saved_tensors_hooks(True) is None


def holds_accumulator(leaf: torch.Tensor) -> bool:
    """Does anybody hold the node at which this leaf's gradients arrive? It may have hooks, which nobody can ask for."""
    node: Any = get_gradient_edge(leaf).node
    node.metadata[_MARK] = True
    del node
    again: Any = get_gradient_edge(leaf).node
    return again.metadata.pop(_MARK, None) is not None


def gradients_of(results: Sequence[Any], inputs: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
    """``torch.autograd.grad``, with None by what is not used; a mode of torch functions sees what runs in it.

    ``torch.autograd.grad`` would be such a function itself, and no mode is active within one.
    """
    start = torch_private.start_of_pass
    if start is None:
        return torch.autograd.grad(results, inputs, given, allow_unused=True)
    found: tuple[Any, ...] = start(
        tuple(results), tuple(given), False, False, tuple(inputs), allow_unreachable=True, accumulate_grad=False
    )
    return found


# The function of torch's through which Python starts a pass of the engine; where the tensors are among its ``args`` by
# which gradients are asked.
_STARTER: Any = getattr(torch_private.start_of_pass, "__code__", None)
_ASKED = 3


def asked_for() -> list[tuple[Any, int]] | None:
    """By what the pass of the engine in which a node is running is asked for gradients: edges; none: by all.

    Nodes of a graph on the CPU run in the thread that started the pass, above the frame which did. Where passes run
    within one another, or a node runs in a thread of the engine's own, which also runs nodes of others: by what all
    passes that may be meant are asked. None where no such frame is found.
    """
    started = _passes(sys._getframe(1))
    if not started or isinstance(threading.current_thread(), threading._DummyThread):
        started = [found for frame in sys._current_frames().values() for found in _passes(frame)]
    asked = [frame.f_locals.get("args", ())[_ASKED : _ASKED + 1] for frame in started]
    if not started or not all(given and isinstance(given[0], (tuple, list)) for given in asked):
        return None
    return [edge_of(other) for given in asked for other in given[0]]


def _passes(frame: FrameType | None) -> list[FrameType]:
    """The frames that have started a pass of the engine, among this one and its callers."""
    found = []
    while frame is not None:
        if frame.f_code is _STARTER:
            found.append(frame)
        frame = frame.f_back
    return found


def edge_of(asked: Any) -> tuple[Any, int]:
    """The place in autograd's graph by which a gradient is asked: that of a tensor, or an edge; no node: a leaf."""
    if not isinstance(asked, torch.Tensor):
        return asked[0], asked[1]
    return (None, 0) if asked.is_leaf else (asked.grad_fn, asked.output_nr)


def warn_of_cycles() -> None:
    """Have torch give its warning about ``backward(create_graph=True)``, which it gives once."""
    with torch_private.without_modes(), torch.enable_grad():
        torch.ones((), requires_grad=True).backward(create_graph=True)


class UsedUp(torch.autograd.Function):
    """A result of the graph whose own graph has been gone through: a way back raises what the engine would."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, *leaves: torch.Tensor) -> torch.Tensor:
        """The value."""
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Raises ``RuntimeError``."""
        raise RuntimeError(USED_UP)


def with_used_up_graph(value: torch.Tensor, leaves: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The value, as what requires grad and has no way back any more to these leaves, or to none that is known."""
    with torch.enable_grad():
        made: torch.Tensor = UsedUp.apply(value, *(leaves or (torch.empty(0, requires_grad=True),)))
    return made
