"""Convolutions of a schedule as calls from native code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from jitney_llvm_cpu.emit.calls import Make
from jitney_llvm_cpu.onednn.convolutions import may_be_packed
from jitney_llvm_cpu.products import DTYPES, argument
from jitney_lowering.index import Index, index
from jitney_lowering.ir import Extern, Number, Program, Strided

_aten = torch.ops.aten


def is_called(extern: Extern, program: Program, names: frozenset[str]) -> bool:
    """May native code call it? ``names``: what torch passed its trial for (``native.available``)."""
    packed = may_be_packed(extern)
    if (extern.target is not _aten.convolution.default and not packed) or extern.kwargs:
        return False
    x, weight, bias, numbers = _parts(extern, packed)
    (made,) = extern.buffers
    assert made is not None
    buffer = program.buffers[made]
    tensors = [x, weight] if bias is None else [x, weight, bias]
    if not all(_is_taken(t, buffer.dtype) for t in tensors) or buffer.device.type != "cpu" or buffer.home is not None:
        return False
    wanted = "packed" if packed else "convolution"
    return wanted in names and numbers[3] is False and all(_is_integers(n) for n in numbers)


def call_of(extern: Extern, program: Program, state: str) -> Make:
    """The call; ``state``: what the entry calls that of a packed convolution."""
    packed = may_be_packed(extern)
    x, weight, bias, numbers = _parts(extern, packed)
    (made,) = extern.buffers
    assert made is not None
    buffer = program.buffers[made]
    result = Strided(made, buffer.dtype, buffer.size, buffer.stride, index(0))
    return Make(
        "jitney_packed" if packed else "jitney_convolution",
        tuple(None if t is None else argument(t) for t in (x, weight, bias)),
        tuple(tuple(map(_index, n)) if isinstance(n, (list, tuple)) else _index(n) for n in numbers),
        argument(result),
        state if packed else "",
    )


def _parts(extern: Extern, packed: bool) -> tuple[Any, Any, Any, Sequence[Any]]:
    """Input, weight, bias, and the numbers in the order of ``aten.convolution``."""
    x, weight, bias, *numbers = extern.args
    if packed:
        padding, stride, dilation, groups = numbers[:4]
        numbers = [stride, padding, dilation, False, [0] * len(stride), groups]
    return x, weight, bias, numbers


def _is_taken(tensor: Any, dtype: torch.dtype) -> bool:
    plain = isinstance(tensor, Strided) and not isinstance(tensor, Number)
    return plain and tensor.dtype is dtype and dtype in DTYPES


def _is_integers(value: Any) -> bool:
    return isinstance(value, (int, Index)) or (isinstance(value, (list, tuple)) and all(map(_is_integers, value)))


def _index(value: int | Index) -> Index:
    return value if isinstance(value, Index) else index(int(value))
