"""Kernels that are matrix products, as ``scheduler/products.py`` offers them to backends that multiply tiles."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from jitney_lowering.index import Var
from jitney_lowering.ir.kernel import Kernel, Reduce, Store
from jitney_lowering.ir.operations import HALVES
from jitney_lowering.ir.values import Apply, Load, Position, Value, walk


@dataclass(frozen=True)
class MatrixProduct:
    """What a kernel sums: ``left`` does not depend on the last of the outer loops, ``right`` not on the one before.

    Both are float32 values cast from a half type, ``dtype``, in which the units multiply.
    """

    left: Value
    right: Value
    along: Var
    name: str
    dtype: torch.dtype


def matrix_product_of(kernel: Kernel) -> MatrixProduct | None:
    """The product that a kernel computes, if that is its form; see ``scheduler/products.py``."""
    if len(kernel.outer) < 2 or len(kernel.body) != 2 or kernel.memory or kernel.finish:
        return None
    summed, stored = kernel.body
    if len(summed.loops) != 1 or len(summed.statements) != 1 or stored.loops:
        return None
    (total,) = summed.statements
    if not isinstance(total, Reduce) or total.kind != "sum" or total.dtype is not torch.float32:
        return None
    if not all(isinstance(s, Store) for s in stored.statements):
        return None
    value, (row, column) = total.value, kernel.outer[-2:]
    if not isinstance(value, Apply) or value.op != "mul":
        return None
    left, right = value.args
    if column in _loops(left):
        left, right = right, left
    dtypes = {_half(left), _half(right)}
    if column in _loops(left) or row in _loops(right) or None in dtypes or len(dtypes) > 1:
        return None
    (dtype,) = dtypes
    assert dtype is not None
    return MatrixProduct(left, right, summed.loops[0], total.name, dtype)


def _loops(value: Value) -> set[object]:
    return {atom for v in walk(value) if isinstance(v, (Load, Position)) for atom in v.index.atoms}


def _half(value: Value) -> torch.dtype | None:
    """The half type that a float32 was cast from."""
    if isinstance(value, Apply) and value.op == "cast" and value.dtype is torch.float32:
        return value.args[0].dtype if value.args[0].dtype in HALVES else None
    return None
