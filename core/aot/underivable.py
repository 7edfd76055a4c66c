"""Inputs whose operator has no derivative: ``torch.unique``, which runs before a graph since its result has any size.

Such an operator raises when the engine reaches it, be it to say that there is no gradient. Eager does not reach it
then; a compiled graph is one function, and would pass on that it has none.
"""

from __future__ import annotations

from typing import Any

import torch

# What results of such operators have as ``grad_fn``, by name: those that no graph holds, and all without any formula.
UNDERIVABLE = frozenset(
    {"NotImplemented", "UniqueBackward0", "Unique2Backward0", "UniqueDimBackward0", "UniqueConsecutiveBackward0",
     "UniqueDimConsecutiveBackward0"}
)  # fmt: skip


def cut_off(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor; one whose gradient cannot be computed, as a result of what raises only if there is one."""
    node = tensor.grad_fn
    if node is None or type(node).__name__ not in UNDERIVABLE:
        return tensor
    made: torch.Tensor = _Underivable.apply(torch.empty(0, requires_grad=True), (tensor,))
    return made


class _Underivable(torch.autograd.Function):
    """A tensor that is hidden from autograd."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, hidden: tuple[torch.Tensor]) -> torch.Tensor:
        ctx.hidden = hidden
        ctx.set_materialize_grads(False)
        return hidden[0].detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if grads[0] is not None:
            (tensor,) = ctx.hidden
            tensor.grad_fn(grads[0])  # raises, in torch's words
            raise NotImplementedError(f"the derivative of {tensor.grad_fn.name()} is not implemented")
        return None, None
