"""Convolutions with windows of one pixel that read each second one: of the pixels that they read, put together before.

With many weights oneDNN has only slow loops for them: 1024 channels of 6 x 6 to 2048 take 6.3 ms, 7.5 for the gradient
of the weights, where a convolution of the 3 x 3 pixels that are read takes 1.0 for each (Zen 4, one thread).
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from jitney_llvm_cpu.onednn.convolutions import DTYPES, has_channels_last
from jitney_lowering import Writer

LEAST = 1 << 18  # weights: with fewer both take as long

_aten = torch.ops.aten


def of_pixels_read(graph: fx.Graph) -> None:
    """Write such convolutions, and their backwards, as those of fewer pixels.

    Args:
        graph: functional ATen operators, each node with its FakeTensor in ``meta["val"]``. It is changed.
    """
    for node in graph.find_nodes(op="call_function", target=_aten.convolution.default):
        x, weight, _, *numbers = node.args
        if _is_sparse(x, weight, numbers):
            node.args = (_read(Writer(graph, node), x, numbers[0]), *node.args[1:3], _ones(numbers[0]), *numbers[1:])
    for node in graph.find_nodes(op="call_function", target=_aten.convolution_backward.default):
        grad, x, weight, bias, *numbers, mask = node.args
        if _is_sparse(x, weight, numbers):
            stride = numbers[0]
            pixels = _read(Writer(graph, node), x, stride)
            node.args = (grad, pixels, weight, bias, _ones(stride), *numbers[1:], mask)
            if mask[0]:
                node.meta["val"] = (pixels.meta["val"], *node.meta["val"][1:])
                _spread(graph, node, stride)


def _is_sparse(x: Any, weight: Any, numbers: Any) -> bool:
    stride, padding, _, transposed, _, _ = numbers
    image, window = x.meta["val"], weight.meta["val"].shape
    lists = (image.shape, window, stride, padding)
    if transposed or image.device.type != "cpu" or any(type(n) is not int for values in lists for n in values):
        return False
    if image.dim() != 4 or len(stride) != 2:  # one number may stand for both
        return False
    single = math.prod(window[2:]) == 1 and not any(padding) and max(stride) > 1
    return single and image.dtype in DTYPES and math.prod(window) >= LEAST and image.numel() > 0


def _ones(numbers: Any) -> list[int]:
    return [1] * len(numbers)


def _read(write: Writer, x: Any, stride: Any) -> fx.Node:
    """The pixels that are read, in an image that lies as the whole one."""
    value = x.meta["val"]
    order = torch.channels_last if has_channels_last(value) else torch.contiguous_format
    for dim, step in enumerate(stride, 2):
        x = write(_aten.slice.Tensor, x, dim, 0, value.shape[dim], step)
    return write(_aten.clone.default, x, memory_format=order)


def _spread(graph: fx.Graph, node: fx.Node, stride: Any) -> None:
    """Have the gradient of the image in the place of that of its pixels: zeros between these."""
    for result in [user for user in node.users if user.target is operator.getitem and user.args[1] == 0]:
        value = result.meta["val"]
        readers = [*result.users]
        result.meta["val"] = node.meta["val"][0]
        if not readers:
            continue
        write = Writer(graph, result.next, result)
        made: Any = result
        for dim, step in enumerate(stride, 2):
            shape = [*made.meta["val"].shape]
            shape[dim] = value.shape[dim]
            empty = write(_aten.full.default, shape, 0, dtype=value.dtype, device=value.device, pin_memory=False)
            made = write(_aten.slice_scatter.default, empty, made, dim, 0, value.shape[dim], step)
        made.meta["val"] = value
        for reader in readers:
            reader.replace_input_with(result, made)
