"""Gradients of depthwise convolutions for which oneDNN has no kernel but its plain loops.

oneDNN (3.x) has kernels for the gradient of a depthwise convolution's weights where windows are up to three elements
wide, and for that of halves' images where windows go step by step. The rest runs in loops without vectors, 5 to
60 times as long as the convolution itself (Zen 4, one thread: 672 channels of 8 x 8, windows of 5 x 5: 0.09 ms
forward, 1.2 ms for the weights, 4.4 ms in bfloat16; 96 channels of 64 x 64, bfloat16, each second pixel: 6.0 ms for
the images).

The gradient of weights is a sum over pixels of products of two images, one of which is moved: one kernel, with channels
along vectors, added up in float32. That of images is a convolution of what arrives, with zeros between its pixels.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from jitney_llvm_cpu.onednn.convolutions import DTYPES
from jitney_lowering import Writer

WIDTH = 3  # elements of the widest window, in its last dimension, for whose weights oneDNN has a kernel
MOST = 1 << 18  # elements of weights that a thread adds up (``Policy.partial_limit``)

_aten = torch.ops.aten
_HALVES = (torch.bfloat16, torch.float16)


def depthwise_gradients(graph: fx.Graph) -> None:
    """Write such gradients as what kernels, or oneDNN's forward kernels, compute.

    Args:
        graph: functional ATen operators, each node with its FakeTensor in ``meta["val"]``. It is changed.
    """
    for node in graph.find_nodes(op="call_function", target=_aten.convolution_backward.default):
        if not _is_depthwise(node):
            continue
        x, weight, stride = node.args[1].meta["val"], node.args[2].meta["val"], node.args[4]
        if weight.shape[-1] > WIDTH and weight.numel() <= MOST:
            _replace(graph, node, 1, _of_weights)
        if x.dtype in _HALVES and max(stride) > 1 and all(p <= reach for p, reach in _edges(node)):
            _replace(graph, node, 0, _of_images)


def _is_depthwise(node: fx.Node) -> bool:
    """Has each channel a window of its own, with sizes that are known?"""
    grad, x, weight, _, stride, padding, dilation, transposed, _, groups, _ = node.args
    values = [tensor.meta["val"] for tensor in (grad, x, weight)]  # type: ignore[union-attr]
    image = values[1]
    if transposed or groups == 1 or image.device.type != "cpu" or image.dtype not in DTYPES:
        return False
    lists: tuple[Any, ...] = (*(v.shape for v in values), stride, padding, dilation)
    if any(type(n) is not int for numbers in lists for n in numbers):
        return False
    if any(len(numbers) != image.dim() - 2 for numbers in lists[3:]):  # one number may stand for all
        return False
    same = all(v.dtype is image.dtype and v.layout is torch.strided for v in values)
    each = groups == image.shape[1] == values[2].shape[0] and values[2].shape[1] == 1
    return same and each and image.dim() in (3, 4) and all(math.prod(v.shape) > 0 for v in values)


def _edges(node: fx.Node) -> list[tuple[int, int]]:
    """By dimension of an image: its padding, and the elements that a window reaches beyond its first."""
    weight, padding, dilation = node.args[2].meta["val"], node.args[5], node.args[6]  # type: ignore[union-attr]
    return [(p, d * (n - 1)) for p, d, n in zip(padding, dilation, weight.shape[2:], strict=True)]  # type: ignore[arg-type]


def _replace(graph: fx.Graph, node: fx.Node, number: int, write: Any) -> None:
    """Have one of the results computed otherwise, and the operator asked for the others alone."""
    *given, mask = node.args
    wanted: Any = list(mask)  # type: ignore[arg-type]
    results = [user for user in node.users if user.target is operator.getitem and user.args[1] == number]
    if not wanted[number] or not results:
        return
    made = write(Writer(graph, node), *given)
    made.meta["val"] = results[0].meta["val"]
    for result in results:
        result.replace_all_uses_with(made)
        graph.erase_node(result)
    wanted[number] = False
    values = [value if keeps else None for value, keeps in zip(node.meta["val"], wanted, strict=True)]
    node.args, node.meta["val"] = (*given, wanted), tuple(values)
    if not node.users:
        graph.erase_node(node)


def _of_weights(
    write: Writer, grad: Any, x: Any, weight: Any, _bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> fx.Node:
    value = weight.meta["val"]
    last = value.dim() - 1
    spatial = range(1, last)
    if any(padding):
        x = write(_aten.constant_pad_nd.default, x, [p for n in reversed(padding) for p in (n, n)], 0.0)
    images = _channels_last(write, x)
    for dim, size, step, apart in zip(spatial, value.shape[2:], stride, dilation, strict=True):
        images = write(_aten.unfold.default, images, dim, apart * (size - 1) + 1, step)
        if apart > 1:
            images = write(_aten.slice.Tensor, images, -1, 0, apart * (size - 1) + 1, apart)
    # Batch, place, channel, place in the window: channels come last.
    rank = images.meta["val"].dim()
    images = write(_aten.permute.default, images, [0, *spatial, *range(last + 1, rank), last])
    arrived = _channels_last(write, grad)
    for _ in spatial:
        arrived = write(_aten.unsqueeze.default, arrived, -2)
    if value.dtype is not torch.float32:
        images = write(_aten._to_copy.default, images, dtype=torch.float32)
        arrived = write(_aten._to_copy.default, arrived, dtype=torch.float32)
    product = write(_aten.mul.Tensor, arrived, images)
    total = write(_aten.sum.dim_IntList, product, [0, *spatial])
    if value.dtype is not torch.float32:
        total = write(_aten._to_copy.default, total, dtype=value.dtype)
    by_channel = write(_aten.permute.default, total, [last - 1, *range(last - 1)])
    made = write(_aten.unsqueeze.default, by_channel, 1)
    return write(_aten.clone.default, made, memory_format=torch.contiguous_format)


def _of_images(
    write: Writer, grad: Any, x: Any, weight: Any, _bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> fx.Node:
    size = [*x.meta["val"].shape]
    groups = size[1]
    window = weight.meta["val"].shape[2:]
    spread = grad
    for dim, (step, p, d, n) in enumerate(zip(stride, padding, dilation, window, strict=True), 2):
        shape = [*spread.meta["val"].shape]
        count, shape[dim] = shape[dim], size[dim] + d * (n - 1)
        value = x.meta["val"]
        empty = write(_aten.full.default, shape, 0, dtype=value.dtype, device=value.device, pin_memory=False)
        begin = d * (n - 1) - p
        spread = write(_aten.slice_scatter.default, empty, spread, dim, begin, begin + (count - 1) * step + 1, step)
    if len(size) == 4:
        spread = write(_aten.clone.default, spread, memory_format=torch.channels_last)
    turned = write(_aten.flip.default, weight, [*range(2, len(size))])
    ones, zeros = [1] * len(window), [0] * len(window)
    return write(_aten.convolution.default, spread, turned, None, ones, zeros, dilation, False, zeros, groups)


def _channels_last(write: Writer, image: Any) -> fx.Node:
    """An image with its channels in the last dimension, and so in memory."""
    rank = image.meta["val"].dim()
    turned = write(_aten.permute.default, image, [0, *range(2, rank), 1])
    if turned.meta["val"].is_contiguous():
        return turned
    return write(_aten.clone.default, turned, memory_format=torch.contiguous_format)
