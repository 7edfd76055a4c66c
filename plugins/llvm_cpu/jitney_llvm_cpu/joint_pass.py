"""What is changed in the whole functional graph: memory formats where convolutions are, and what computes these."""

from __future__ import annotations

import torch
from torch import fx

from jitney_llvm_cpu.onednn.depthwise import depthwise_gradients
from jitney_llvm_cpu.onednn.filter_order import filters_as_images
from jitney_llvm_cpu.onednn.matrices import products_of_pixels
from jitney_llvm_cpu.onednn.subsampling import of_pixels_read
from jitney_llvm_cpu.options import LlvmCpuOptions
from jitney_lowering import CHANNEL_REDUCTIONS, Convolution, channels_last, join_products, recompute_norm_results


def joint_pass(graph: fx.Graph, options: LlvmCpuOptions) -> None:
    """Products in the place of convolutions of single pixels, memory formats, gradients, what of norms is kept."""
    products_of_pixels(graph)
    if options.layout_optimization and torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled:
        channels_last(graph, "cpu", _worth, CHANNEL_REDUCTIONS, plain_weights=True)
    if torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled:
        of_pixels_read(graph)
        filters_as_images(graph)
        depthwise_gradients(graph)
    join_products(graph)
    recompute_norm_results(graph)


def _worth(convolution: Convolution) -> float:
    """oneDNN, given channels_first, converts what it reads and what it gives; other dtypes are not oneDNN's."""
    return 1.0 if convolution.dtype in (torch.float32, torch.bfloat16, torch.float16) else 0.0
