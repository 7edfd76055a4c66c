"""The llvm_cpu backend: kernels for the CPU through llvmlite, without a C++ compiler."""

from __future__ import annotations

from jitney.backends import Backend
from jitney_llvm_cpu.compiler import aten_decompositions, compile_graph
from jitney_llvm_cpu.kept import load
from jitney_llvm_cpu.options import LlvmCpuOptions

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1

backend = Backend(
    name="llvm_cpu",
    compile=compile_graph,
    level="aten",
    device_types=("cpu",),
    options=LlvmCpuOptions,
    decompositions=aten_decompositions,
    version="0.1.0",
    load=load,
)
