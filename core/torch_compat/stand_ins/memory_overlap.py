"""What ATen's TensorIterator says of tensors whose elements share memory (``aten/src/ATen/MemoryOverlap.cpp``).

torch's stand-ins do not look: the error would come when the graph runs, where the program's own ``try`` is over. Of
symbolic sizes nothing is asked, and of tensors that only lie in one memory: how far apart is not guarded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from jitney.torch_compat import torch_private

aten = torch.ops.aten
# In place and element by element, but without that check, or not by TensorIterator.
UNCHECKED = {aten.conj_physical_.default, aten.ldexp_.default, aten.threshold_.default,
             aten.masked_fill_.Scalar, aten.masked_fill_.Tensor}  # fmt: skip
ONE_PLACE = (
    "unsupported operation: {} refer{} to a single memory location. "
    "Please clone() the tensor before performing the operation."
)
ITSELF = ONE_PLACE.format("more than one element of the written-to tensor", "s")
OTHERS = ONE_PLACE.format("some elements of the input tensor and the written-to tensor", "")


def check_memory(func: Any, x: Any, *others: Any, **named: Any) -> None:
    """Raise eager's error for an operator in place on ``x``."""
    if func in UNCHECKED or any(type(n) is int and n == 0 for n in x.shape):
        return
    for size, stride in zip(x.shape, x.stride(), strict=True):
        if type(stride) is int and stride == 0 and _is_several(size):
            raise RuntimeError(ITSELF)
    for other in (*others, *named.values()):
        if isinstance(other, torch.Tensor) and other is not x and _base(other) is _base(x) and _meet(x, other):
            raise RuntimeError(OTHERS)


def _is_several(size: Any) -> bool:
    return size > 1 if type(size) is int else not torch_private.data_symbols(size)  # of other symbols none is 0 or 1


def _is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Does it fill its memory, in whatever order of dimensions? Empty ones meet nothing."""
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return step > 0


def _base(x: Any) -> Any:
    return x if x._base is None else x._base


def _meet(one: Any, other: Any) -> bool:
    facts = [(x.shape, x.stride(), x.storage_offset()) for x in (one, other)]
    if any(type(n) is not int for size, stride, at in facts for n in (*size, *stride, at)):
        return False
    if one.dtype is not other.dtype or not all(_is_dense(size, stride) for size, stride, _ in facts):
        return False  # too hard to say, for ATen as well
    ends = [(at, at + math.prod(size)) for size, _, at in facts]
    if ends[0] == ends[1]:
        return facts[0][1] != facts[1][1]
    return ends[0][0] < ends[1][1] and ends[1][0] < ends[0][1]
