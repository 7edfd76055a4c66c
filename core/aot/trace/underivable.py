"""Inputs whose operator has no derivative: ``torch.unique``, which runs before a graph since its result has any size.

Such an operator raises when the engine reaches it, be it to say that there is no gradient. Eager does not reach it
then; a compiled graph is one function, and would pass on that it has none. So these calls run the graph as captured.
Hiding the operator from the engine would be wrong: ``torch.autograd.grad`` would no longer find the way to what is
before it, and give what comes by other ways only.
"""

from __future__ import annotations

import torch

# What results of such operators have as ``grad_fn``, by name: those that no graph holds, and all without any formula.
UNDERIVABLE = frozenset(
    {"NotImplemented", "UniqueBackward0", "Unique2Backward0", "UniqueDimBackward0", "UniqueConsecutiveBackward0",
     "UniqueDimConsecutiveBackward0"}
)  # fmt: skip


def underivable(tensor: torch.Tensor) -> bool:
    """Is it the result of such an operator?"""
    node = tensor.grad_fn
    return node is not None and type(node).__name__ in UNDERIVABLE
