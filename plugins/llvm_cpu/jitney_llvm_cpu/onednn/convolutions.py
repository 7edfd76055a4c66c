"""An inference graph whose larger convolutions are those that keep their weights in oneDNN's order.

The operator is torch's own, ``mkldnn._convolution_pointwise``: as it stands in the graph it takes plain weights, and a
graph with it may run as it is. The wrapper calls a ``PackedConvolution`` in its place.

Of the functions that oneDNN could apply to a result only the identity is asked for: its ``relu``, ``clip`` and
``hardsigmoid`` make numbers of NaN, its ``gelu`` makes NaN of infinity; what eager gives is our kernels' after it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from jitney_llvm_cpu.onednn.packed import PackedConvolution
from jitney_llvm_cpu.onednn.question import IDENTITY
from jitney_lowering import hints
from jitney_lowering.ir import Extern

# Measured on a Zen 4 core, beside torch's own call: less is saved of smaller weights than looking at them costs. Of
# windows of one pixel torch computes those with little work without oneDNN in one thread, which takes 20 us less.
BYTES = 1 << 15
BYTES_OF_ONE_PIXEL = 1 << 17
BYTES_IN_ONE_THREAD = 1 << 20
WORK_IN_ONE_THREAD = 8_000_000  # multiplications

_aten = torch.ops.aten
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # of images and filters
_NEEDED = ("_convolution_pointwise", "_reorder_convolution_weight", "_get_mkldnn_serialized_md")


def operators() -> Any:
    """Torch's private namespace ``mkldnn``; None where it lacks what is needed, or oneDNN is switched off."""
    found: Any = torch.ops.mkldnn
    usable = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return found if usable and all(hasattr(found, name) for name in _NEEDED) else None


def with_packed_weights(graph: fx.GraphModule) -> fx.GraphModule:
    """The graph, or a copy in which convolutions that gain by it are called with weights that oneDNN has put in order.

    Args:
        graph: of inference: functional ATen operators, each node with its FakeTensor in ``meta["val"]``.
    """
    mkldnn = operators()
    if mkldnn is None or not any(_is_packed(node, mkldnn) for node in graph.graph.nodes):
        return graph
    copy = fx.Graph()
    result = copy.graph_copy(graph.graph, {})
    copy.output(result)
    for node in copy.find_nodes(op="call_function", target=_aten.convolution.default):
        if _is_packed(node, mkldnn):
            x, weight, bias, stride, padding, dilation, _, _, groups = node.args
            node.target = mkldnn._convolution_pointwise.default
            node.args = (x, weight, bias, padding, stride, dilation, groups, *IDENTITY)
    return fx.GraphModule(graph, copy)


def called_instead(extern: Extern) -> Any:
    """What the wrapper calls in an operator's place; None for the operator, such as one that the program called."""
    return PackedConvolution() if may_be_packed(extern) else None


def may_be_packed(extern: Extern) -> bool:
    """Is it an operator for weights in order, rather than one that the program called?"""
    mkldnn = operators()
    if mkldnn is None or extern.target is not mkldnn._convolution_pointwise.default:
        return False
    return tuple(extern.args[7:]) == IDENTITY


def _is_packed(node: fx.Node, mkldnn: Any) -> bool:
    """Is it a convolution for which packed weights are known to be faster, as far as the sizes tell?"""
    if node.target is not _aten.convolution.default or node.args[6]:
        return False
    x, weight = (argument.meta["val"] for argument in node.args[:2])  # type: ignore[union-attr]
    plain = all(type(n) is int for n in (*weight.shape, *weight.stride()))
    if x.device.type != "cpu" or x.dim() not in FORMATS or not plain or not _supported(x.dtype, mkldnn):
        return False
    memory_format = FORMATS[x.dim()]
    dense = weight.is_contiguous() or weight.is_contiguous(memory_format=memory_format)
    return dense and has_channels_last(x) and _gains(node)


def _gains(node: fx.Node) -> bool:
    """Do sizes as they are now, and the number of threads, say that it takes less time?"""
    weight, stride = node.args[1].meta["val"], node.args[3]  # type: ignore[union-attr]
    image = math.prod(hints(node.meta["val"].shape)[2:])
    if image == 1 or math.prod(weight.shape[2:]) > 1 or any(n != 1 for n in stride):  # type: ignore[union-attr]
        return image > 1 and weight.nbytes >= BYTES
    if torch.get_num_threads() > 1:
        return bool(weight.nbytes >= BYTES_OF_ONE_PIXEL)
    return weight.nbytes >= BYTES_IN_ONE_THREAD or _work(node) >= WORK_IN_ONE_THREAD


def _supported(dtype: torch.dtype, mkldnn: Any) -> bool:
    asked = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    return dtype is torch.float32 or (dtype in asked and bool(getattr(mkldnn, asked[dtype], bool)()))


def has_channels_last(x: torch.Tensor) -> bool:
    """In memory, whatever the batch: no guard is made of its strides."""
    size, stride = hints(x.shape), hints(x.stride())
    expected, step = {}, 1
    for dim in (1, *reversed(range(2, x.dim())), 0):
        expected[dim] = step
        step *= size[dim]
    return all(stride[dim] == expected[dim] or size[dim] == 1 for dim in range(x.dim()))


def _work(node: fx.Node) -> int:
    """Multiplications, for sizes as they are now."""
    weight = node.args[1].meta["val"]  # type: ignore[union-attr]
    return math.prod(hints(node.meta["val"].shape)) * math.prod(weight.shape[1:])
