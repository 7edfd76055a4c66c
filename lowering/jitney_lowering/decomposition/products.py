"""Products of vectors, and matrix products that a GPU's libraries are slow at.

A product of two vectors, or of a matrix and a vector, is bound by memory, and a library takes longer to be called than
to multiply a few hundred numbers. On a CPU such products are sums, which fuse with what is around them; on a GPU those
of two vectors are.

Of products of a few columns by a few rows, or of a few rows by a few columns, little is multiplied: points that are
turned, first layers of coordinates, their gradients. They are sums, which fuse with what is around them.

Rows that do not begin at multiples of 16 bytes are not for the fast units: such operands get an edge of zeros, and the
edge of the result is cut off: more exact zeros are added, so the numbers are the same. The edges are made where the
operands are computed, or cost one pass over them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes, is_empty, wide
from jitney_lowering.ir.operations import HALVES

DEVICE = "cuda"
FEW = 4  # rows or columns
STEP = 8  # elements of 2 bytes
WORTH = 200  # multiplications for each byte that is moved to make the edges

SUMMED = (torch.float32, torch.float64)


@decomposes(aten.dot.default, aten.vdot.default)
def dot(a: Tensor, b: Tensor) -> Any:
    """A sum of products."""
    return (wide(a) * wide(b)).sum(0).to(a.dtype) if _is_summed(a, b, on_gpus=True) else NotImplemented


@decomposes(aten.mv.default)
def mv(a: Tensor, b: Tensor) -> Any:
    """A sum for each row."""
    return (a * b).sum(1) if _is_summed(a, b) else NotImplemented


@decomposes(aten.addmv.default)
def addmv(c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """The same plus something."""
    if not _is_summed(a, b) or c.dtype is not a.dtype:
        return NotImplemented
    product = (a * b).sum(1) if alpha == 1 else (a * b).sum(1) * alpha
    if beta == 0:  # nothing of it counts, what is no number neither
        return product
    return product + (c if beta == 1 else c * beta)


def _is_summed(a: Tensor, b: Tensor, on_gpus: bool = False) -> bool:
    """Is a product of vectors a sum here? Libraries of CPUs add up halves and whole numbers in ways of their own."""
    known = a.dtype in SUMMED if a.device.type == "cpu" else on_gpus and a.dtype.is_floating_point
    return known and a.device.type in ("cpu", DEVICE) and b.dtype is a.dtype and not is_empty(a)


@decomposes(aten.mm.default)
def mm(a: Tensor, b: Tensor) -> Any:
    """A sum, a product with even rows, or not taken apart."""
    if _is_sum(a, b):
        return _sum(a, b).to(a.dtype).contiguous()
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


@decomposes(aten.bmm.default)
def bmm(a: Tensor, b: Tensor) -> Any:
    """Sums, if there is little to multiply in each; one product, if all are multiplied by the same matrix."""
    if _is_sum(a, b):
        return _sum(a, b).to(a.dtype).contiguous()
    if not _is_of_one_matrix(a, b):
        return NotImplemented
    return aten.mm.default(a.flatten(0, 1), b[0]).view(*a.shape[:2], b.shape[2])


@decomposes(aten.addmm.default, aten.baddbmm.default)
def addmm(c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """The same plus something, rounded once."""
    if not _is_sum(a, b) or c.dtype is not a.dtype:
        return NotImplemented
    product = _sum(a, b)
    if alpha != 1:
        product = product * alpha
    if beta != 0:  # else nothing of it counts, what is no number neither
        product = product + (wide(c) if beta == 1 else wide(c) * beta)
    return product.to(a.dtype).contiguous()


def _is_of_one_matrix(a: Tensor, b: Tensor) -> bool:
    """Is the right matrix the same for all, and do the left ones' rows follow each other? So a layer has it."""
    if a.device.type != DEVICE or not a.dtype.is_floating_point or is_empty(a) or is_empty(b):
        return False
    count, rows = a.shape[:2]
    if not all(isinstance(size, int) for size in (count, rows)) or count == 1 or b.stride(0) != 0:
        return False
    return rows == 1 or bool(a.stride(0) == rows * a.stride(1))


def _is_sum(a: Tensor, b: Tensor) -> bool:
    """Is so little multiplied for each element that is read or written?"""
    (m, k), n = a.shape[-2:], b.shape[-1]
    if a.device.type != DEVICE or not a.dtype.is_floating_point or b.dtype is not a.dtype:
        return False
    if any(isinstance(size, int) and not size for size in (*a.shape, n)):
        return False
    return _is_few(k) or (_is_few(m) and _is_few(n))


def _is_few(size: Any) -> bool:
    return isinstance(size, int) and size <= FEW


def _sum(a: Tensor, b: Tensor) -> Tensor:
    return (wide(a).unsqueeze(-1) * wide(b).unsqueeze(-3)).sum(-2)


def _is_turned(x: Tensor) -> bool:
    """Do columns lie in memory one after the other?"""
    return x.stride(0) == 1 and x.stride(1) != 1


def _wider(x: Tensor, rows: int, columns: int) -> Tensor:
    if not rows and not columns:
        return x
    if _is_turned(x):
        return aten.constant_pad_nd.default(x.t(), [0, rows, 0, columns], 0.0).t()
    return aten.constant_pad_nd.default(x, [0, columns, 0, rows], 0.0)
