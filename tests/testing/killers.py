"""Backends that take their process down, on purpose."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from jitney.backends import Backend, CompileRequest


def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Any:
    """Crashes where a graph negates."""
    deadly = any(node.target is torch.ops.aten.neg.default for node in graph.graph.nodes)

    def compiled(*given: Any) -> Any:
        return ctypes.string_at(0) if deadly else graph.forward(*given)

    return compiled


crashes = Backend("crashes", compile_graph, level="aten")
