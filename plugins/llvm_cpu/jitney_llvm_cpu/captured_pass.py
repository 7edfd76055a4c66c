"""What is changed in a captured graph before it is traced: attention that was written out is one operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from jitney_llvm_cpu.options import LlvmCpuOptions
from jitney_lowering.attention import with_attention


def captured_pass(
    module: fx.GraphModule, inputs: Sequence[Any], trace: Callable[..., Any], options: LlvmCpuOptions
) -> fx.GraphModule:
    """See ``Backend``."""
    if not options.fused_attention:
        return module
    from jitney_llvm_cpu.attention.choice import takes

    return with_attention(module, inputs, trace, takes, ("cpu",))
