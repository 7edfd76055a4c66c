"""The triton_gpu backend: fused Triton kernels for CUDA GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from jitney.backends import Backend, CompileRequest, lazy_function
from jitney_triton_gpu.device import DEVICE_TYPES
from jitney_triton_gpu.options import TritonGpuOptions
from jitney_triton_gpu.requirements import lacks, refuse

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """The function of one graph; see ``Backend``. Raises ``RuntimeError`` where something is missing."""
    refuse(lacks())
    # With the first graph only: backend="auto" imports this module on every machine, and Triton takes a second.
    from jitney_triton_gpu.compiler import compile_graph as compile_now

    return compile_now(graph, inputs, request)


def aten_decompositions(options: TritonGpuOptions) -> Mapping[Any, Callable[..., Any]]:
    """The operators that are taken apart."""
    table: Mapping[Any, Callable[..., Any]] = lazy_function("jitney_lowering:decompositions")(
        fallback_random=options.fallback_random, relaxed_math=options.relaxed_math, first_of_equals=True
    )
    return table


backend = Backend(
    name="triton_gpu",
    compile=compile_graph,
    level="aten",
    device_types=DEVICE_TYPES,
    options=TritonGpuOptions,
    decompositions=aten_decompositions,
    captured_pass=lazy_function("jitney_triton_gpu.captured_pass:captured_pass"),
    joint_pass=lazy_function("jitney_triton_gpu.joint_pass:joint_pass"),
    version="0.1.0",
    lacks=lacks,
    load=lazy_function("jitney_triton_gpu.serialization:load"),
    auto_priority=30,
)
