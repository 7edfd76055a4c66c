"""Filters of several pixels in the order of their images, for gradients of convolutions.

oneDNN has weights in the order of the images: channels last. torch gets them so, and their gradients back, by copies
of strides: of 512 filters of 512 x 3 x 3 and images of 3 x 3 pixels, 3.7 of the 7.5 ms that both gradients take.
Kernels copy in half of that time, and go on with the gradient.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from jitney_llvm_cpu.onednn.convolutions import DTYPES, has_channels_last
from jitney_lowering import Writer

LEAST = 1 << 14  # weights

_aten = torch.ops.aten


def filters_as_images(graph: fx.Graph) -> None:
    """Have gradients of convolutions computed with filters whose channels come last.

    Args:
        graph: functional ATen operators, each node with its FakeTensor in ``meta["val"]``. It is changed.
    """
    for node in graph.find_nodes(op="call_function", target=_aten.convolution_backward.default):
        if _is_copied(node):
            _turn(graph, node)


def _is_copied(node: fx.Node) -> bool:
    """Does torch copy the filters?"""
    grad, x, weight = (tensor.meta["val"] for tensor in node.args[:3])  # type: ignore[union-attr]
    transposed, mask = node.args[7], node.args[10]
    if transposed or not mask[0] or weight.dim() != 4 or x.device.type != "cpu":  # type: ignore[index]
        return False
    if x.dtype not in DTYPES or any(type(n) is not int for n in weight.shape) or weight.numel() < LEAST:
        return False
    several = weight.shape[1] > 1 and math.prod(weight.shape[2:]) > 1
    return several and weight.is_contiguous() and has_channels_last(x) and has_channels_last(grad)


def _turn(graph: fx.Graph, node: fx.Node) -> None:
    write = Writer(graph, node)
    weight = write(_aten.clone.default, node.args[2], memory_format=torch.channels_last)
    node.args = (*node.args[:2], weight, *node.args[3:])
    for result in [user for user in node.users if user.target is operator.getitem and user.args[1] == 1]:
        readers = [*result.users]
        value: Any = result.meta["val"]
        if value.is_contiguous(memory_format=torch.channels_last):  # then who wants it otherwise copies it
            continue
        result.meta["val"] = weight.meta["val"]
        node.meta["val"] = (node.meta["val"][0], weight.meta["val"], *node.meta["val"][2:])
        if not readers:
            continue
        after = Writer(graph, result.next, result)
        back = after(_aten.clone.default, result, memory_format=torch.contiguous_format)
        back.meta["val"] = value
        for reader in readers:
            reader.replace_input_with(result, back)
