"""What is changed in the whole functional graph: memory formats, products and biases, what a backward does again."""

from __future__ import annotations

import torch
from torch import fx

from jitney_lowering import (
    CHANNEL_REDUCTIONS,
    Convolution,
    channels_last,
    hints,
    join_products,
    recompute_norm_results,
    unfuse_biases,
)
from jitney_triton_gpu.device import DEVICE_TYPES, convolves_in_tf32, multiplies_in_tf32
from jitney_triton_gpu.options import TritonGpuOptions

DEPTHWISE = 3.0
"""Times the bytes of a convolution of single channels that it saves to have them last."""
WIDE_WINDOW = 49
"""Elements of the largest window that cuDNN has such kernels for; others take 4 to 7 times as long as torch's."""
SLOW = -40.0
"""Times the bytes of a convolution of single channels that its kernels for channels last lose by a larger window."""
PRODUCT = 0.5
"""The same of a window of one element, in halves: rows of one channel are seldom aligned as a matrix's should be."""
FEW, WHOLE = 8, 32
"""Results that are few, unless channels are a multiple of ``WHOLE``: then fewer than ``ALIGNED`` are."""
FEW_RESULTS = -0.5
"""Times the bytes of a convolution of few results that its kernels for channels last lose, for each channel."""

READING = (*CHANNEL_REDUCTIONS, torch.ops.aten.stack.default)
"""What our kernels read as it lies, whatever the format of their results is."""
ALIGNED = 4  # elements of 4 bytes
ROWS = 256
"""Of a product, from which on its bias may be added elsewhere; what kernels of ours multiply has fewer."""
LONG = 2
"""Times its columns: so many elements are added up for each result of a product that is faster without its bias."""
PART = 1 << 20
"""Results that occupy a part of a chip, unless the sums for them are shared between threads."""


def joint_pass(graph: fx.Graph, options: TritonGpuOptions) -> None:
    """Choose memory formats, then what of norms is kept; see ``Backend``."""
    if options.layout_optimization and torch.backends.cudnn.enabled:
        for device_type in DEVICE_TYPES:
            channels_last(graph, device_type, _worth, READING)
    join_products(graph)
    unfuse_biases(graph, _loses_by_bias)
    recompute_norm_results(graph)


def _worth(convolution: Convolution) -> float:
    """Tensor cores read channels last. cuDNN converts for them, but for windows of one element: products of matrices.

    Where each channel is convolved by itself, cuDNN has kernels for channels last that are several times as fast as
    torch's for channels first, for windows of up to 7 x 7 (float32: 5 x 5 for gradients); grouped convolutions have
    better kernels for channels first. Those of several results for each channel are torch's own in eager, and add up in
    float32: as eager has them they stay. Of channels that are no
    multiple of ``ALIGNED``, such as a picture's, cuDNN's kernels for channels first add up in float32, the others round
    to TF32: numbers would be other ones for nothing. Its float32 kernels for few results with the channels last take up
    to five times as long as the others, the more channels they read the longer.
    """
    if convolution.dtype is torch.float64:
        return 0.0
    if convolution.groups > 1:
        if convolution.groups != convolution.channels:
            return -0.5
        single = convolution.dtype is torch.float32
        if single and convolution.results != convolution.channels:
            return -0.5
        precise = convolution.backward and single
        return SLOW if convolution.window + precise > WIDE_WINDOW else DEPTHWISE
    if convolution.window == 1:
        return 0.0 if convolution.dtype is torch.float32 else PRODUCT
    if convolution.dtype is torch.float32 and (convolution.channels % ALIGNED or not convolves_in_tf32()):
        return 0.0
    few = convolution.results < (ALIGNED if convolution.channels % WHOLE == 0 else FEW)
    if few and not convolution.backward and convolution.dtype is torch.float32:
        return FEW_RESULTS * convolution.channels
    return 1.0


def _loses_by_bias(product: fx.Node) -> bool:
    """Has cuBLAS better kernels for the product alone? On an H200 they take 0.62 to 0.86 of the time in such cases.

    Of 14 pairs of sizes with 512 to 16,384 rows each; in others, 0.9 to 1.1. Products in TF32 are not faster.
    """
    value, (_, left, _) = product.meta["val"], product.args
    assert isinstance(left, fx.Node)
    if value.device.type not in DEVICE_TYPES or value.dtype is not torch.float32:
        return False
    if multiplies_in_tf32():
        return False
    rows, columns, length = hints((*value.shape, left.meta["val"].shape[1]))
    return rows >= ROWS and (length >= LONG * columns or rows * columns <= PART)
