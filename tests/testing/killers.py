"""Backends that take their process down, or hang, on purpose."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from jitney.backends import Backend, CompileRequest


def _where_it_negates(happens: Callable[[], Any]) -> Any:
    """A backend's function, by which something happens where a graph negates."""

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Any:
        deadly = any(node.target is torch.ops.aten.neg.default for node in graph.graph.nodes)
        return lambda *given: happens() if deadly else graph.forward(*given)

    return compile_graph


crashes = Backend("crashes", _where_it_negates(lambda: ctypes.string_at(0)), level="aten")
hangs = Backend("hangs", _where_it_negates(lambda: time.sleep(1000)), level="aten")
