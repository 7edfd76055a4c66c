"""From kernels to LLVM IR text."""

from jitney_llvm_cpu.emit.calls import Argument, Call
from jitney_llvm_cpu.emit.module import Entry, emit_module
from jitney_llvm_cpu.emit.storage import Place

__all__ = ["Argument", "Call", "Entry", "Place", "emit_module"]
