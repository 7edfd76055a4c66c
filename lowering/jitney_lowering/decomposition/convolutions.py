"""Convolutions on GPUs, where eager's bias and its gradient have kernels of their own: here they fuse with others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes, is_empty
from jitney_lowering.ir.operations import HALVES

DEVICE = "cuda"


@decomposes(aten.convolution.default)
def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[Any], padding: Sequence[Any],
    dilation: Sequence[Any], transposed: bool, output_padding: Sequence[Any], groups: int,
) -> Any:  # fmt: skip
    """A convolution and a sum. A depthwise one of halves has the bias inside, before its result is rounded."""
    if bias is None or x.device.type != DEVICE or is_empty(x) or (groups > 1 and x.dtype in HALVES):
        return NotImplemented
    product = aten.convolution.default(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    return product + bias.view([1, -1] + [1] * (product.dim() - 2))


@decomposes(aten.convolution_backward.default)
def convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Sequence[Any] | None, stride: Sequence[Any],
    padding: Sequence[Any], dilation: Sequence[Any], transposed: bool, output_padding: Sequence[Any], groups: int,
    output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    """The gradients of input and weight; the bias's is a sum beside them."""
    if not output_mask[2] or grad.device.type != DEVICE or is_empty(grad) or is_empty(x):
        return NotImplemented
    of_bias = grad.sum([0, *range(2, grad.dim())])
    if not any(output_mask[:2]):
        return None, None, of_bias
    mask = [*output_mask[:2], False]
    found = aten.convolution_backward.default(
        grad, x, weight, None, stride, padding, dilation, transposed, output_padding, groups, mask
    )
    return *found[:2], of_bias
