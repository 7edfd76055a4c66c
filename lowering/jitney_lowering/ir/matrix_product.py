"""Kernels that are matrix products, as ``scheduler/products.py`` offers them to backends that multiply tiles."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from jitney_lowering.index import Var
from jitney_lowering.ir.kernel import Kernel, Reduce, Statement, Store
from jitney_lowering.ir.operations import HALVES
from jitney_lowering.ir.values import Apply, Load, Position, Value, walk

MOST_TOGETHER = 3  # products of one matrix: each has sums in registers and tiles on their way


@dataclass(frozen=True)
class MatrixProduct:
    """What a kernel sums: ``left`` does not depend on the last of the outer loops, ``rights`` not on the one before.

    All are float32 values cast from a half type, ``dtype``, in which the units multiply. There is a name for each sum.
    """

    left: Value
    rights: tuple[Value, ...]
    along: Var
    names: tuple[str, ...]
    dtype: torch.dtype


def matrix_product_of(kernel: Kernel) -> MatrixProduct | None:
    """The product that a kernel computes, or several of one matrix; None for others. See ``scheduler/products.py``."""
    if len(kernel.outer) < 2 or len(kernel.body) != 2 or kernel.memory or kernel.finish:
        return None
    summed, stored = kernel.body
    if len(summed.loops) != 1 or not 0 < len(summed.statements) <= MOST_TOGETHER or stored.loops:
        return None
    if not all(isinstance(s, Store) for s in stored.statements):
        return None
    found = [_factors(s, *kernel.outer[-2:]) for s in summed.statements]
    lefts, rights = {f and f[0] for f in found}, tuple([f[1] for f in found if f is not None])
    if len(rights) < len(found) or len(lefts) > 1:
        return None
    (left,) = lefts
    assert left is not None
    dtypes = {_half(v) for v in (left, *rights)}
    if None in dtypes or len(dtypes) > 1:
        return None
    (dtype,) = dtypes
    assert dtype is not None
    names = tuple([s.name for s in summed.statements if isinstance(s, Reduce)])
    return MatrixProduct(left, rights, summed.loops[0], names, dtype)


def _factors(total: Statement, row: Var, column: Var) -> tuple[Value, Value] | None:
    """What is multiplied, that of the rows first."""
    if not isinstance(total, Reduce) or total.kind != "sum" or total.dtype is not torch.float32:
        return None
    value = total.value
    if not isinstance(value, Apply) or value.op != "mul":
        return None
    left, right = value.args
    if column in _loops(left):
        left, right = right, left
    return None if column in _loops(left) or row in _loops(right) else (left, right)


def _loops(value: Value) -> set[object]:
    return {atom for v in walk(value) if isinstance(v, (Load, Position)) for atom in v.index.atoms}


def _half(value: Value) -> torch.dtype | None:
    """The half type that a float32 was cast from."""
    if isinstance(value, Apply) and value.op == "cast" and value.dtype is torch.float32:
        return value.args[0].dtype if value.args[0].dtype in HALVES else None
    return None
