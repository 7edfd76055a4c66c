"""``torch.compile(model, backend="jitney_triton_gpu")``."""

from jitney.torch_compile import backend_for

triton_gpu = backend_for("triton_gpu")
