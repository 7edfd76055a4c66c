"""Operations traced in other words than torch's: so that no value of a tensor decides, or with the strides of eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from jitney.aot.trace.fused_updates import IN_OPERATORS

_ONE_HOT = torch.nn.functional.one_hot  # the original: programs may replace it
_RRELU = torch.nn.functional.rrelu


def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """As ``torch.nn.functional.one_hot``, which looks at the least and the greatest class before anything is done.

    A class that is too great or negative is out of bounds for ``scatter``: also a ``RuntimeError``.
    """
    if type(num_classes) is not int or num_classes < 1 or tensor.dtype is not torch.int64:
        return _ONE_HOT(tensor, num_classes)
    zeros = torch.zeros((*tensor.shape, num_classes), dtype=torch.int64, device=tensor.device)
    return zeros.scatter(-1, tensor.unsqueeze(-1), 1)


def rrelu(
    input: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> torch.Tensor:
    """As ``torch.nn.functional.rrelu``: the CPU's kernel makes a contiguous result, its functional form does not."""
    if not inplace and input.device.type == "cpu":
        input = input.contiguous()
    return _RRELU(input, lower, upper, training, inplace)


def parameter(data: torch.Tensor, requires_grad: bool = True) -> torch.Tensor:
    """As ``torch.nn.Parameter``, in the words of operators; the class is none of a graph's business."""
    return data.detach().requires_grad_(requires_grad)


def buffer(data: torch.Tensor, persistent: bool = True) -> torch.Tensor:
    """As ``torch.nn.Buffer``."""
    return parameter(data, data.requires_grad)


# What a captured graph calls -> what is traced in its place.
REWRITTEN: dict[Any, Callable[..., Any]] = {
    _ONE_HOT: one_hot,
    torch.ops.aten.one_hot.default: one_hot,
    _RRELU: rrelu,
    torch.nn.Parameter: parameter,
    torch.nn.Buffer: buffer,
    **IN_OPERATORS,
}

# They make constants of symbolic integers, and keep 32 bits of one that is not in a list.
_FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray, "new_tensor")


def without_symbols(target: Any, values: Any) -> Any:
    """The arguments of an operation as it takes them: numbers for the symbolic integers that C++ would cut off.

    Args:
        target: what the captured graph calls, or a method's name.
        values: a tuple of arguments, or a dictionary.
    """
    if target not in _FROM_DATA:
        return values
    if isinstance(values, dict):
        return dict(zip(values, without_symbols(target, tuple(values.values())), strict=True))
    return tuple(int(v) if isinstance(v, torch.SymInt) else v for v in values)
