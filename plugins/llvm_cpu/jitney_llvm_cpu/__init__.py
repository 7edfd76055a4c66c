"""The llvm_cpu backend: kernels for the CPU through llvmlite, without a C++ compiler."""

from __future__ import annotations

from jitney.backends import Backend, lazy_function
from jitney_llvm_cpu.options import LlvmCpuOptions

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1

backend = Backend(
    name="llvm_cpu",
    compile=lazy_function("jitney_llvm_cpu.compiler:compile_graph"),
    level="aten",
    device_types=("cpu",),
    options=LlvmCpuOptions,
    decompositions=lazy_function("jitney_llvm_cpu.compiler:aten_decompositions"),
    captured_pass=lazy_function("jitney_llvm_cpu.captured_pass:captured_pass"),
    joint_pass=lazy_function("jitney_llvm_cpu.joint_pass:joint_pass"),
    version="0.1.0",
    load=lazy_function("jitney_llvm_cpu.serialization:load"),
    auto_priority=40,
)
