"""``torch.compile(model, backend="jitney_llvm_cpu")``."""

from jitney.torch_compile import backend_for

llvm_cpu = backend_for("llvm_cpu")
