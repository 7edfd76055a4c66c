"""What is changed in a captured graph before it is traced: attention is one operator, where that is ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from jitney_lowering.attention import with_attention
from jitney_triton_gpu.device import DEVICE_TYPES
from jitney_triton_gpu.options import TritonGpuOptions


def captured_pass(
    module: fx.GraphModule, inputs: Sequence[Any], trace: Callable[..., Any], options: TritonGpuOptions
) -> fx.GraphModule:
    """See ``Backend``."""
    if not options.fused_attention:
        return module
    from jitney_triton_gpu.attention.choice import FEW, takes

    return with_attention(module, inputs, trace, takes, DEVICE_TYPES, FEW)
