"""What is changed in the whole functional graph: memory formats where convolutions are."""

from __future__ import annotations

import torch
from torch import fx

from jitney_lowering import Convolution, channels_last
from jitney_triton_gpu.device import DEVICE_TYPES
from jitney_triton_gpu.options import TritonGpuOptions


def joint_pass(graph: fx.Graph, options: TritonGpuOptions) -> None:
    """Choose memory formats, in inference; see ``Backend``.

    Given models and inputs in channels_last, ResNet-50's training gained a tenth in float32 on an H200, nothing in
    bfloat16, and PoolFormer's lost a third.
    """
    trains = any(node.target is torch.ops.aten.convolution_backward.default for node in graph.nodes)
    if options.layout_optimization and torch.backends.cudnn.enabled and not trains:
        for device_type in DEVICE_TYPES:
            channels_last(graph, device_type, _worth)


def _worth(convolution: Convolution) -> float:
    """Tensor cores read channels last. cuDNN converts for them, but for windows of one element: products of matrices.

    Grouped convolutions have better kernels for channels first.
    """
    if convolution.window == 1 or convolution.dtype is torch.float64:
        return 0.0
    if convolution.groups > 1:
        return 0.0 if convolution.groups == convolution.channels else -0.5
    return 1.0 if convolution.dtype is not torch.float32 or torch.backends.cudnn.allow_tf32 else 0.0
