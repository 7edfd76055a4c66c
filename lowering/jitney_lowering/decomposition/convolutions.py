"""Convolutions on GPUs, where eager adds the bias with a kernel of its own: so the sum fuses with what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes, is_empty
from jitney_lowering.ir.operations import HALVES

DEVICE = "cuda"


@decomposes(aten.convolution.default)
def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[Any], padding: Sequence[Any],
    dilation: Sequence[Any], transposed: bool, output_padding: Sequence[Any], groups: int,
) -> Any:  # fmt: skip
    """A convolution and a sum. A depthwise one of halves has the bias inside, before its result is rounded."""
    if bias is None or x.device.type != DEVICE or is_empty(x) or (groups > 1 and x.dtype in HALVES):
        return NotImplemented
    product = aten.convolution.default(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    return product + bias.view([1, -1] + [1] * (product.dim() - 2))
