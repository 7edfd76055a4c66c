"""The aot_eager backend: forward and backward as functional ATen graphs, run operator by operator.

It makes nothing faster. It tells faults of the forward/backward split from faults of a kernel backend, and with
``options={"decompose": "core"}`` those of a decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import fx

from jitney.backends import Backend, CompileRequest, core_decompositions

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1


@dataclass(frozen=True)
class AotEagerOptions:
    """Options of the aot_eager backend.

    Args:
        decompose: ``none``: ATen operators as autograd calls them; ``core``: taken apart to core ATen operators.
        save_code: show the code that FX generated, in the logs as ``output_code``.
    """

    decompose: Literal["none", "core"] = "none"
    save_code: bool = False


def decompositions(options: AotEagerOptions) -> Mapping[Any, Callable[..., Any]]:
    """The operators that are taken apart."""
    return core_decompositions() if options.decompose == "core" else {}


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """The graph's own ``forward``: each ATen operator is called in order."""
    if request.options.save_code:
        request.save("output_code", graph.code)
    # The bound method, not the module: calling a module costs hook checks on every call.
    return graph.forward


backend = Backend(
    name="aot_eager",
    compile=compile_graph,
    level="aten",
    options=AotEagerOptions,
    decompositions=decompositions,
    version="0.1.0",
    auto_priority=10,
)
