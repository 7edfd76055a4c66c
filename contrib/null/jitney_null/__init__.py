"""The null backend: each graph computes once, then returns those outputs for ever.

What a call still costs is everything but the graph: guards, inputs, the glue around forward and backward, autograd.
Its numbers are those of the first call, so it is for measuring only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from jitney.backends import Backend, CompileRequest

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1


@dataclass(frozen=True)
class NullOptions:
    """Options of the null backend.

    Args:
        compute: run the graph at every call, operator by operator: the same path with right numbers.
    """

    compute: bool = False


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """A callable that returns what the graph returned at its first call; see ``Backend``.

    The outputs, and with them their memory, live as long as the callable. Later calls look at no input: shapes and
    values are those of the first.
    """
    if request.options.compute:
        return graph.forward
    compute = graph.forward
    kept: Sequence[Any] | None = None

    def run(*values: Any) -> Sequence[Any]:
        nonlocal kept
        if kept is None:
            kept = tuple(compute(*values))
        return kept

    return run


backend = Backend(name="null", compile=compile_graph, level="aten", options=NullOptions, version="0.1.0")
