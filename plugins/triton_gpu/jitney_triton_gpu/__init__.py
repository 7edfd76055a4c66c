"""The triton_gpu backend: fused Triton kernels for CUDA GPUs."""

from __future__ import annotations

from jitney.backends import Backend
from jitney_triton_gpu.compiler import aten_decompositions, compile_graph
from jitney_triton_gpu.device import DEVICE_TYPES
from jitney_triton_gpu.options import TritonGpuOptions

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1

backend = Backend(
    name="triton_gpu",
    compile=compile_graph,
    level="aten",
    device_types=DEVICE_TYPES,
    options=TritonGpuOptions,
    decompositions=aten_decompositions,
    version="0.1.0",
)
