"""Convolutions that are matrix products, and take less time as such.

Those of single pixels: the gates of squeeze-and-excitation, heads after a global pool. torch has oneDNN compute them as
convolutions, which takes two to a hundred times as long; and products are called from native code with what follows in
one kernel. A part of the joint pass, so gradients are products too.

In one thread, windows of one pixel over images with the channels last, without a bias: a product takes 0.8 to 1.05 of
the time of a convolution (13 sizes of ResNets and MobileNets, AVX-512), into memory that is warm.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from jitney_llvm_cpu.onednn.convolutions import FORMATS, has_channels_last
from jitney_lowering import Writer

_aten = torch.ops.aten
_DTYPES = (torch.float32, torch.float64)  # halves are rounded where eager rounds them


def products_of_pixels(graph: fx.Graph) -> None:
    """Write such convolutions, and their backwards, as products of matrices.

    Args:
        graph: functional ATen operators, each node with its FakeTensor in ``meta["val"]``. It is changed.
    """
    for node in graph.find_nodes(op="call_function", target=_aten.convolution.default):
        if _is_product(node.args[:2], node.args[3:]):
            _forward(graph, node)
    for node in graph.find_nodes(op="call_function", target=_aten.convolution_backward.default):
        if _is_product(node.args[1:3], node.args[4:10]):
            _backward(graph, node)


def with_products(graph: fx.GraphModule) -> fx.GraphModule:
    """The graph, or a copy in which images are multiplied as matrices, where one thread takes less time so.

    Args:
        graph: of inference: functional ATen operators, each node with its FakeTensor in ``meta["val"]``.
    """
    if torch.get_num_threads() > 1 or not any(map(_is_of_rows, graph.graph.nodes)):
        return graph
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph.graph, {}))
    for node in copy.find_nodes(op="call_function", target=_aten.convolution.default):
        if _is_of_rows(node):
            _of_rows(copy, node)
    return fx.GraphModule(graph, copy)


def _is_of_rows(node: fx.Node) -> bool:
    """Is each pixel, a row of memory, multiplied with the same matrix?"""
    if node.target is not _aten.convolution.default or node.args[2] is not None:
        return False
    stride, padding, _, transposed, _, groups = node.args[3:]
    x, weight = (argument.meta["val"] for argument in node.args[:2])  # type: ignore[union-attr]
    numbers = (*weight.shape, *x.shape[1:], *stride, *padding)  # type: ignore[misc]
    if transposed or groups != 1 or x.dtype is not torch.float32 or any(type(n) is not int for n in numbers):
        return False
    plain = math.prod(weight.shape[2:]) == 1 and {*stride} == {1} and {*padding} == {0}  # type: ignore[misc]
    lies = x.device.type == "cpu" and x.dim() in FORMATS and has_channels_last(x) and weight.is_contiguous()
    return plain and lies and math.prod(x.shape[1:]) > 0


def _of_rows(graph: fx.Graph, node: fx.Node) -> None:
    write = _Matrices(graph, node)
    x, weight = node.args[:2]
    value = node.meta["val"]
    last = value.dim() - 1
    rows = write(_aten.permute.default, x, [0, *range(2, last + 1), 1])
    rows = write(_aten.view.default, rows, [-1, weight.meta["val"].shape[1]])  # type: ignore[union-attr]
    product = write(_aten.mm.default, rows, write(_aten.t.default, write.matrix(weight)))
    images = write(_aten.view.default, product, [-1, *value.shape[2:], value.shape[1]])
    write.replace(node, write(_aten.permute.default, images, [0, last, *range(1, last)]))
    graph.erase_node(node)


def _is_product(tensors: Sequence[Any], numbers: Sequence[Any]) -> bool:
    """Is it of one pixel, with a window of one pixel, that reads all channels?

    Args:
        tensors: input and weight.
        numbers: the operator's arguments from ``stride`` on.
    """
    _, padding, _, transposed, _, groups = numbers
    values = [tensor.meta["val"] for tensor in tensors]
    if any(v.device.type != "cpu" or v.dtype not in _DTYPES or v.layout is not torch.strided for v in values):
        return False
    single = all(type(n) is int and n == 1 for v in values for n in v.shape[2:])
    return single and not transposed and groups == 1 and all(type(n) is int and n == 0 for n in padding)


class _Matrices(Writer):
    """Images of single pixels as matrices, and back."""

    def matrix(self, tensor: Any) -> fx.Node:
        """Without its pixels."""
        return self(_aten.squeeze.dims, tensor, [*range(2, tensor.meta["val"].dim())])

    def replace(self, node: fx.Node, matrix: fx.Node) -> None:
        """Have this result, with pixels, in the place of a node's, as that lies."""
        value = node.meta["val"]
        for _ in range(value.dim() - matrix.meta["val"].dim()):
            matrix = self(_aten.unsqueeze.default, matrix, -1)
        matrix.meta["val"] = value
        node.replace_all_uses_with(matrix)


def _forward(graph: fx.Graph, node: fx.Node) -> None:
    write = _Matrices(graph, node)
    x, weight, bias = node.args[:3]
    product = write(_aten.mm.default, write.matrix(x), write(_aten.t.default, write.matrix(weight)))
    if bias is not None:
        product = write(_aten.add.Tensor, product, bias)
    write.replace(node, product)
    graph.erase_node(node)


def _backward(graph: fx.Graph, node: fx.Node) -> None:
    write = _Matrices(graph, node)
    grad, x, weight = (write.matrix(argument) for argument in node.args[:3])
    for result in [user for user in node.users if user.target is operator.getitem]:
        if result.args[1] == 0:
            made = write(_aten.mm.default, grad, weight)
        elif result.args[1] == 1:
            made = write(_aten.mm.default, write(_aten.t.default, grad), x)
        else:
            made = write(_aten.sum.dim_IntList, grad, [0])
        write.replace(result, made)
        graph.erase_node(result)
    if not node.users:
        graph.erase_node(node)
