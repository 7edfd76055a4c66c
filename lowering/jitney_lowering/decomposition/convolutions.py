"""Convolutions on GPUs, where eager's bias and its gradient have kernels of their own: here they fuse with others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes, is_empty, wide
from jitney_lowering.ir.operations import HALVES
from jitney_lowering.policy import GPU

DEVICE = "cuda"
SUMMED = 9  # elements of the largest window whose gradient is a sum for each


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
    if grad.device.type != DEVICE or is_empty(grad) or is_empty(x):
        return NotImplemented
    if _is_filter(x, weight, groups) and not transposed:
        found = _of_filter(grad, x, weight, stride[0], padding[0], dilation[0], output_mask)
        if found is not None:
            return found
    if not output_mask[2]:
        return NotImplemented
    of_bias = grad.sum([0, *range(2, grad.dim())])
    if not any(output_mask[:2]):
        return None, None, of_bias
    mask = [*output_mask[:2], False]
    found = aten.convolution_backward.default(
        grad, x, weight, None, stride, padding, dilation, transposed, output_padding, groups, mask
    )
    return *found[:2], of_bias


def _is_filter(x: Tensor, weight: Tensor, groups: int) -> bool:
    """Has each channel of a row a small window, and one result? Of images, libraries' kernels are faster."""
    sizes = weight.shape
    if x.dim() != 3 or any(not isinstance(n, int) for n in sizes) or not x.dtype.is_floating_point:
        return False
    return sizes[0] == groups == x.shape[1] and math.prod(sizes[1:]) <= GPU.filter_window


def _of_filter(
    grad: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int, dilation: int, output_mask: Sequence[bool]
) -> Any:
    """Of a convolution of single channels: windows again, turned round, and a sum for each of a window's elements."""
    groups, _, window = weight.shape
    numbers = ([stride], [padding], [dilation], False, [0], groups)
    back = dilation * (window - 1) - padding
    own = [output_mask[0] and stride == 1 and back >= 0, output_mask[1] and window <= SUMMED]
    mask = [output_mask[0] and not own[0], output_mask[1] and not own[1], False]
    if not any(own):
        return None
    of_input, of_weight = None, None
    if any(mask):
        of_input, of_weight, _ = aten.convolution_backward.default(grad, x, weight, None, *numbers, mask)
    if own[0]:
        turned = weight.flip(2)
        of_input = aten.convolution.default(grad, turned, None, [1], [back], [dilation], False, [0], groups)
    if own[1]:
        padded = wide(aten.constant_pad_nd.default(x, [padding, padding], 0.0) if padding else x)
        last = stride * (grad.shape[2] - 1) + 1
        parts = [padded[:, :, i * dilation : i * dilation + last : stride] for i in range(window)]
        of_weight = torch.stack([(wide(grad) * part).sum([0, 2]) for part in parts], 1)
        of_weight = of_weight.view(weight.shape).to(weight.dtype)
    return of_input, of_weight, grad.sum([0, 2]) if output_mask[2] else None
