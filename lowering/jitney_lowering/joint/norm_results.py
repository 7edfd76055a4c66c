"""Batch norms whose results nobody has to keep: the backward has what they are made of.

The gradient of a batch norm looks at what it was given, mean and deviation. The gradient of an activation that comes
next (SiLU, GELU, ELU) looks at the norm's result, which is a product and a sum of these: computed again where it is
read it takes no memory from the forward to the backward, and less goes through memory in both.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from jitney_lowering.ir.operations import HALVES
from jitney_lowering.joint.writer import Writer
from jitney_lowering.rules.pointwise import POINTWISE

aten = torch.ops.aten
NORMS = (aten.native_batch_norm.default, aten.cudnn_batch_norm.default)


def recompute_norm_results(graph: fx.Graph) -> None:
    """Have a backward compute the results of batch norms that its pointwise operators read.

    Args:
        graph: functional ATen operators, forward and backward, with ``meta["phase"]``. It is changed.
    """
    for target in NORMS:
        for norm in graph.find_nodes(op="call_function", target=target):
            _compute_again(graph, norm)


def _compute_again(graph: fx.Graph, norm: fx.Node) -> None:
    x, training, results = norm.args[0], norm.args[5], _results(norm)
    assert isinstance(x, fx.Node)
    if training is not True or not {0, 1, 2} <= results.keys() or not any(map(_is_late, x.users)):
        return  # by running statistics, or the backward does not look at what the norm was given
    readers = [user for user in results[0].users if _is_late(user)]
    if not readers or not all(user.target in POINTWISE for user in readers):
        return  # what reads memory would have it written there
    if x.meta["val"].stride() != results[0].meta["val"].stride():
        return
    first = next(node for node in graph.nodes if node in readers)
    again = _result(Writer(graph, first), norm, results[1], results[2])
    for reader in readers:
        reader.replace_input_with(results[0], again)


def _results(norm: fx.Node) -> dict[Any, fx.Node]:
    return {user.args[1]: user for user in norm.users if user.target is operator.getitem}


def _is_late(node: fx.Node) -> bool:
    return node.meta.get("phase") == "backward"


def _result(write: Writer, norm: fx.Node, mean: fx.Node, rstd: fx.Node) -> fx.Node:
    """``(x - mean) * factor + bias``: the gradient of the norm looks at the difference, too."""
    x, weight, bias = norm.args[:3]
    assert isinstance(x, fx.Node)
    value = x.meta["val"]
    wide = torch.float32 if value.dtype in HALVES else value.dtype

    def widened(node: Any) -> Any:
        return node if node.meta["val"].dtype is wide else write(aten._to_copy.default, node, dtype=wide)

    def column(node: Any) -> Any:
        for _ in range(value.dim() - 2):
            node = write(aten.unsqueeze.default, node, -1)
        return node

    factor = widened(rstd)
    if weight is not None:
        factor = write(aten.mul.Tensor, widened(weight), factor)
    centred = write(aten.sub.Tensor, widened(x), column(widened(mean)))
    made = write(aten.mul.Tensor, centred, column(factor))
    if bias is not None:
        made = write(aten.add.Tensor, made, column(widened(bias)))
    return made if value.dtype is wide else write(aten._to_copy.default, made, dtype=value.dtype)
