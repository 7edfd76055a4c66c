"""Gradients of activations that their results tell as well as what they were given.

What comes after an activation mostly keeps its result anyway, a convolution's input, say. Where the gradient looks at
that too, nobody has to keep what the activation was given. Only gradients that are the same to the last bit count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from jitney.aot.trace.joint import Joint
from jitney.aot.trace.results import root_of

aten = torch.ops.aten


def _leaky_relu(of: fx.Node, gradient: fx.Node) -> tuple[Any, ...] | None:
    """A result is positive where the input is, if the slope is."""
    grad, _, slope, is_result = gradient.args
    same = _argument(of, 1, "negative_slope", 0.01) == slope
    if is_result or not same or not isinstance(slope, (int, float)) or slope <= 0:
        return None
    return grad, of, slope, True


def _hardtanh(of: fx.Node, gradient: fx.Node) -> tuple[Any, ...] | None:
    """A result lies between the limits where the input does."""
    grad, _, low, high = gradient.args
    limits = _argument(of, 1, "min_val", -1), _argument(of, 2, "max_val", 1)
    return (grad, of, low, high) if limits == (low, high) else None


# By the gradient's operator: the activation's, and the gradient's arguments if the result may take the input's place.
_GRADIENTS: dict[Any, tuple[Any, Callable[[fx.Node, fx.Node], tuple[Any, ...] | None]]] = {
    aten.leaky_relu_backward.default: (aten.leaky_relu.default, _leaky_relu),
    aten.hardtanh_backward.default: (aten.hardtanh.default, _hardtanh),
}


def read_results(joint: Joint) -> None:
    """Have gradients of a joint graph read an activation's result in its input's place, where that is as good.

    Results that the graph returns stay out of it: who gets them may write to them before the backward.
    """
    returned = {root_of(n) for n in joint.outputs if isinstance(n, fx.Node)}
    for node in joint.graph.nodes:
        if node.target not in _GRADIENTS or node.kwargs or not isinstance(node.args[1], fx.Node):
            continue
        forward, arguments = _GRADIENTS[node.target]
        for of in node.args[1].users:
            made = arguments(of, node) if of.target is forward and of.args[0] is node.args[1] else None
            if made is not None and root_of(of) not in returned and of < node:
                node.args = made
                break


def _argument(node: fx.Node, position: int, name: str, default: float) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)
