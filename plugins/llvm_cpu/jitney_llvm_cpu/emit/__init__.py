"""From kernels to LLVM IR text."""

from jitney_llvm_cpu.emit.module import emit_module
from jitney_llvm_cpu.emit.storage import Place

__all__ = ["Place", "emit_module"]
