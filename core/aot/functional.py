"""A captured graph, or a part of one, as ATen operators: for backends that look at it before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from jitney.aot.partition.cost import has_effect, is_random
from jitney.aot.signals import NotSplit
from jitney.aot.trace.joint import trace_joint


@dataclass(frozen=True)
class Functional:
    """What a graph computes.

    Args:
        graph: of ATen operators, without output. Placeholders are the graph's inputs, then gradients of results.
        results: the node of each result.
        gradients: by input: the node of its gradient, None without one.
        constants: the graph's attributes.
    """

    graph: fx.Graph
    results: list[Any]
    gradients: list[Any]
    constants: dict[str, torch.Tensor]


def functional(
    module: fx.GraphModule, inputs: Sequence[Any], decompositions: Mapping[Any, Callable[..., Any]]
) -> Functional | None:
    """What a captured graph computes; None if that is not all, or cannot be said.

    Args:
        module: operations as the user called them; one tuple of results that are no views as output.
        inputs: stand-ins; those that require grad get gradients.
        decompositions: operators to be taken apart.
    """
    try:
        joint = trace_joint(module, inputs, decompositions)
    except NotSplit:
        return None
    if joint.updates or joint.final_state or joint.layout is not None:
        return None
    if any(has_effect(node) or is_random(node) for node in joint.graph.nodes):
        return None
    return Functional(joint.graph, joint.outputs, joint.gradients, joint.constants)
