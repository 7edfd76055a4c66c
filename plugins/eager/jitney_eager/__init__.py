"""The eager backend: runs the captured graph as it is. Also the smallest complete plugin, to copy from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from jitney.backends import Backend, CompileRequest

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1


@dataclass(frozen=True)
class EagerOptions:
    """Options of the eager backend.

    Args:
        save_code: show the code that FX generated, in the logs as ``output_code``.
    """

    save_code: bool = False


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """The graph's own ``forward``: each operation is called in order, as the user wrote it."""
    if request.options.save_code:
        request.save("output_code", graph.code)
    # The bound method, not the module: calling a module costs hook checks on every call.
    return graph.forward


backend = Backend(
    name="eager",
    compile=compile_graph,
    level="torch",
    options=EagerOptions,
    version="0.1.0",
    auto_priority=20,
    data_sizes=True,
)
