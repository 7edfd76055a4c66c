"""Products of matrices without the bias that is added to them, where kernels read the result anyway.

Libraries choose among fewer kernels if they shall add a bias, and none of those that share a long sum between threads;
to add it where the result is read costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import fx

from jitney_lowering.joint.order import ADDMM, MM
from jitney_lowering.joint.writer import Writer
from jitney_lowering.rules import VIEWS
from jitney_lowering.rules.pointwise import POINTWISE

aten = torch.ops.aten
EXACT = (torch.float32, torch.float64)
"""Of others, results are rounded before the bias is added, and once more: eager rounds once."""


def unfuse_biases(graph: fx.Graph, worth: Callable[[fx.Node], bool]) -> None:
    """Make ``addmm`` of a bias, all of whose readers are pointwise, a product and a sum.

    Args:
        graph: functional ATen operators, each with its FakeTensor in ``meta["val"]``. It is changed.
        worth: is the product of this ``addmm`` faster without its bias?
    """
    for node in graph.find_nodes(op="call_function", target=ADDMM):
        if _has_bias(node) and worth(node) and all(user.target in POINTWISE for user in _readers(node)):
            write = Writer(graph, node)
            bias, left, right = node.args
            node.replace_all_uses_with(write(aten.add.Tensor, write(MM, left, right), bias))
            graph.erase_node(node)


def _has_bias(node: fx.Node) -> bool:
    """Is a number for each column added, and nothing multiplied?"""
    value, bias = node.meta["val"], node.args[0]
    assert isinstance(bias, fx.Node)
    given = bias.meta["val"]
    return not node.kwargs and value.dtype in EXACT and given.dtype is value.dtype and given.dim() == 1


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """Who reads it, or a view of it; the output of the graph, if the program gets it."""
    for user in node.users:
        if user.target in VIEWS:
            yield from _readers(user)
        else:
            yield user
