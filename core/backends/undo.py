"""Writes of a graph that raises within the program's own ``try``: undone, so that the frame may run eagerly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney.backends.faults import Unwritten
from jitney.cache.recipes import RECIPE, call
from jitney.errors import JitneyError
from jitney.torch_compat import torch_private
from jitney.torch_compat.views import has_lost_history


@dataclass(frozen=True)
class Before:
    """A tensor before a graph that may write to it.

    Args:
        tensor: itself.
        copy: what was in it.
        facts: shape, strides, whether it requires grad, and its history.
        version: how often it had been written to.
    """

    tensor: torch.Tensor
    copy: torch.Tensor
    facts: tuple[Any, ...]
    version: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Before:
        """As it is now."""
        return cls(tensor, _memory(tensor).clone(), _facts(tensor), 0 if tensor.is_inference() else tensor._version)

    def put_back(self) -> None:
        """Make it hold the same again."""
        _memory(self.tensor).copy_(self.copy)
        if not self.tensor.is_inference():
            torch_private.set_version_counters((self.tensor,), (self.version,))


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """The data, each element once: what is expanded could not be copied to."""
    data = tensor.data
    if any(step == 0 and size > 1 for size, step in zip(data.shape, data.stride(), strict=True)):
        span = 1 + sum((size - 1) * step for size, step in zip(data.shape, data.stride(), strict=True))
        return data.as_strided((span,), (1,)) if data.numel() else data
    return data


def _facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    history = tensor.grad_fn if tensor.requires_grad and not has_lost_history(tensor) else None
    return tensor.shape, tensor.stride(), tensor.requires_grad, history


def undoing(compiled: Callable[..., Sequence[Any]], written: Sequence[int]) -> Callable[..., Sequence[Any]]:
    """``compiled``, which raises ``Unwritten`` for what it raises after having undone its writes.

    Unless autograd has seen one, or a shape has changed: then the error itself goes on.

    Args:
        compiled: a graph that runs operator by operator.
        written: the positions of the inputs that it writes to.
    """

    def run(*inputs: Any) -> Sequence[Any]:
        before = [Before.of(inputs[i]) for i in written]
        try:
            return compiled(*inputs)
        except Exception as error:
            if isinstance(error, (JitneyError, Unwritten, torch_private.STOPS_RECOMPUTATION)):
                raise
            if any(_facts(b.tensor) != b.facts for b in before):
                raise
            for b in before:
                b.put_back()
            raise Unwritten(error) from error

    run.__dict__[RECIPE] = lambda writer: call(
        "jitney.backends.undo:undoing", writer.ref(compiled), writer.ref(tuple(written))
    )
    return run
