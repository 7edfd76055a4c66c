"""From kernels of loop nests to the text of Triton kernels, and how they are launched."""

from jitney_triton_gpu.emit.function import short_name
from jitney_triton_gpu.emit.kernels import emit

__all__ = ["emit", "short_name"]
