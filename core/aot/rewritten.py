"""Operations that torch itself writes in terms of others, but so that a value of a tensor decides: here none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_ONE_HOT = torch.nn.functional.one_hot  # the original: programs may replace it


def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """As ``torch.nn.functional.one_hot``, which looks at the least and the greatest class before anything is done.

    A class that is too great or negative is out of bounds for ``scatter``: also a ``RuntimeError``.
    """
    if type(num_classes) is not int or num_classes < 1 or tensor.dtype is not torch.int64:
        return _ONE_HOT(tensor, num_classes)
    zeros = torch.zeros((*tensor.shape, num_classes), dtype=torch.int64, device=tensor.device)
    return zeros.scatter(-1, tensor.unsqueeze(-1), 1)


# What a captured graph calls -> what is traced in its place.
REWRITTEN: dict[Any, Callable[..., Any]] = {
    _ONE_HOT: one_hot,
    torch.ops.aten.one_hot.default: one_hot,
}
