"""jitney's backends under torch.compile: one backend, two front ends.

A backend's package names a function made by ``backend_for`` in the entry-point group ``torch_dynamo_backends``; then
``torch.compile(model, backend="jitney_llvm_cpu")`` finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from jitney.aot.compiler import compile_graph
from jitney.backends import resolve
from jitney.errors import JitneyError
from jitney.graph_compile.pipeline import aot_request

TorchBackend = Callable[..., Callable[..., Sequence[Any]]]


def backend_for(name: str) -> TorchBackend:
    """A function of torch.compile's contract that hands graphs to the jitney backend of this name.

    It takes what torch.compile gives: the graph module, its example inputs, and as keywords ``options`` and ``mode``.
    The stand-ins that torch.compile traced with are used for shapes: symbolic sizes stay symbolic.
    """

    def compile_for_torch(
        graph: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        options: Mapping[str, Any] | None = None,
        mode: str | None = None,
    ) -> Callable[..., Sequence[Any]]:
        bound = resolve(name, options, mode)
        request = bound.request("forward" if torch.is_grad_enabled() else "inference", _name(graph))
        if bound.backend.level == "torch":
            return bound.compile(graph, example_inputs, request)
        given = [_stand_in(node) for node in graph.graph.find_nodes(op="placeholder")]
        return compile_graph(graph, given, aot_request(bound, request, compile_for_torch.__code__))

    compile_for_torch.__name__ = f"jitney_{name}"
    return compile_for_torch


def _stand_in(node: fx.Node) -> Any:
    for key in ("example_value", "val"):
        if key in node.meta:
            return node.meta[key]
    raise JitneyError(
        f"the graph's input {node.name} has no stand-in", hint="give this backend to torch.compile", phase="aot"
    )


def _name(graph: fx.GraphModule) -> str:
    """The user's function, as far as the graph knows it."""
    for node in graph.graph.nodes:
        for _, kind in (node.meta.get("nn_module_stack") or {}).values():
            return str(getattr(kind, "__name__", kind))
    return "a graph of torch.compile"
