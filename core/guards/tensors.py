"""What is guarded about tensors: class, dtype, device, sizes, strides, keys, requires_grad, memory that none share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney.torch_compat import torch_private

Sizes = tuple[int | None, ...]  # None where it is symbolic


@dataclass(frozen=True, slots=True)
class TensorFact:
    """One tensor's guarded metadata. Strides are in elements."""

    cls: type[torch.Tensor]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    keys: str
    sizes: Sizes
    strides: Sizes

    @classmethod
    def of(cls, tensor: torch.Tensor, sizes: Sizes, strides: Sizes) -> TensorFact:
        """The facts about a tensor, with those sizes and strides that count."""
        facts = tensor.dtype, tensor.device, tensor.requires_grad, torch_private.dispatch_keys(tensor)
        return cls(type(tensor), *facts, sizes, strides)

    def holds(self, tensor: Any) -> bool:
        """Are these the facts about this object?"""
        if not isinstance(tensor, torch.Tensor) or type(tensor) is not self.cls or tensor.dim() != len(self.sizes):
            return False
        sizes = tuple([None if want is None else n for want, n in zip(self.sizes, tensor.size(), strict=True)])
        steps = tuple([None if want is None else n for want, n in zip(self.strides, tensor.stride(), strict=True)])
        return TensorFact.of(tensor, sizes, steps) == self


def tensor_check(tensors: Sequence[torch.Tensor], facts: Sequence[TensorFact]) -> Callable[..., bool]:
    """One call that checks as many tensors, and that no two of them are one.

    Args:
        tensors: of which the facts hold. torch's global state must be the user's, since the check remembers it.
        facts: one for each.
    """
    if torch_private.TensorGuards is None:
        return python_tensor_check(facts)
    sizes, strides = [list(f.sizes) for f in facts], [list(f.strides) for f in facts]
    made = torch_private.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    check: Callable[..., bool] = made.check
    return check


def python_tensor_check(facts: Sequence[TensorFact]) -> Callable[..., bool]:
    """``tensor_check`` without torch's C helper."""

    def check(*tensors: Any) -> bool:
        if len({id(t) for t in tensors}) != len(tensors):
            return False
        with torch_private.DisableTorchFunctionSubclass():
            return all(fact.holds(t) for fact, t in zip(facts, tensors, strict=True))

    return check


def tensor_facts(value: Any, sizes: Sizes | None = None) -> str:
    """A tensor's guarded metadata, for messages; where ``sizes`` has None, any size is as good."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    with torch_private.DisableTorchFunctionSubclass():
        shape: Any = tuple(value.shape)
        if sizes is not None and len(sizes) == len(shape) and None in sizes:
            shown = ["any" if want is None else str(n) for want, n in zip(sizes, shape, strict=True)]
            shape = f"({', '.join(shown)}{',' * (len(shown) == 1)})"
        return f"{type(value).__name__}{shape} {value.dtype} {value.device} requires_grad={value.requires_grad}"


def nothing_shared(written: tuple[bool, ...], *tensors: torch.Tensor) -> bool:
    """Does no tensor on the CPU that is written to reach into another one? Said of whole spans of memory."""
    with torch_private.DisableTorchFunctionSubclass():
        spans = sorted((*_span(t), w) for t, w in zip(tensors, written, strict=True) if t.numel())
    end = end_written = 0  # of all spans so far, and of those written to
    for begin, beyond, is_written in spans:
        if begin < end_written or (is_written and begin < end):
            return False
        end = max(end, beyond)
        if is_written:
            end_written = max(end_written, beyond)
    return True


def views_of_none(leaves: int, *tensors: torch.Tensor) -> bool:
    """Is no tensor a view of one of the first so many? Whether those require grad is what their views ask, too."""
    return bases_of(tensors[leaves:]).isdisjoint(map(id, tensors[:leaves]))


def bases_of(tensors: Sequence[torch.Tensor]) -> set[int]:
    """The ids of the tensors of which these are views."""
    with torch_private.DisableTorchFunctionSubclass():
        return {id(base) for tensor in tensors if (base := tensor._base) is not None}


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()
