"""Matrix products whose rows do not begin at multiples of 16 bytes, which a GPU's fast units do not take.

Such operands get an edge of zeros, and the edge of the result is cut off: more exact zeros are added, so the numbers
are the same. The edges are made where the operands are computed, or cost one pass over them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes
from jitney_lowering.ir.operations import HALVES

DEVICE = "cuda"
STEP = 8  # elements of 2 bytes
WORTH = 200  # multiplications for each byte that is moved to make the edges


@decomposes(aten.mm.default)
def mm(a: Tensor, b: Tensor) -> Any:
    """A product with even rows, or not taken apart."""
    (m, k), n = a.shape, b.shape[1]
    if a.device.type != DEVICE or a.dtype not in HALVES or not all(isinstance(s, int) for s in (m, k, n)):
        return NotImplemented
    rows = -m % STEP if _is_turned(a) else 0
    inner = -k % STEP if not _is_turned(a) or _is_turned(b) else 0
    columns = -n % STEP
    if not (rows or inner or columns) or not m * k * n:
        return NotImplemented
    moved = (m * k if rows or inner else 0) + (k * n if inner or columns else 0) + m * n
    if m * k * n < WORTH * moved * a.element_size():
        return NotImplemented
    product = aten.mm.default(_wider(a, rows, inner), _wider(b, inner, columns))
    if not rows and not columns:
        return product
    return product[:m, :n].clone(memory_format=torch.contiguous_format)  # with a matrix's strides, of one row too


def _is_turned(x: Tensor) -> bool:
    """Do columns lie in memory one after the other?"""
    return x.stride(0) == 1 and x.stride(1) != 1


def _wider(x: Tensor, rows: int, columns: int) -> Tensor:
    if not rows and not columns:
        return x
    if _is_turned(x):
        return aten.constant_pad_nd.default(x.t(), [0, rows, 0, columns], 0.0).t()
    return aten.constant_pad_nd.default(x, [0, columns, 0, rows], 0.0)
