"""How far results are from what is exact, and whether that is a failure."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FLOOR = 1e-3  # of the largest value of all: a gradient far below it is made of rounding
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8, torch.bfloat16: 2e-2, torch.float16: 2e-2}
WORSE = 10.0  # how many times further than eager


def wide(*tensors: Tensor) -> torch.dtype:
    """The type in which tensors of any type can be compared."""
    return torch.complex128 if any(t.is_complex() for t in tensors) else torch.float64


def largest(tensor: Tensor) -> float:
    """The largest finite magnitude."""
    if not tensor.numel():
        return 0.0
    size = tensor.detach().to(wide(tensor)).abs()  # there is none of truth values, nor of float8
    return float(size.nan_to_num(nan=0.0, posinf=0.0).max())


def misshapen(expected: Sequence[Tensor], found: Sequence[Tensor]) -> str:
    """In what the results are not of one kind; "" if they are."""
    if len(expected) != len(found):
        return f"{len(found)} tensors instead of {len(expected)}"
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"tensor {i}: {b.dtype} {tuple(b.shape)} instead of {a.dtype} {tuple(a.shape)}"
    return ""


def error(expected: Sequence[Tensor], found: Sequence[Tensor]) -> float:
    """The largest difference of any tensor, as a part of its largest value (or of FLOOR of the largest of all).

    Infinite where only one is NaN or infinite, or shapes differ. Integers count like other numbers.
    """
    if [t.shape for t in expected] != [t.shape for t in found]:
        return float("inf")
    sizes = [largest(t) for t in expected]
    whole = max((size for t, size in zip(expected, sizes, strict=True) if t.is_floating_point()), default=0.0)
    worst = 0.0
    for a, b, size in zip(expected, found, sizes, strict=True):
        if not a.numel():
            continue
        kind = wide(a, b)
        a, b = a.detach().to(kind), b.detach().to(kind)
        alike = (a == b) | (a.isnan() & b.isnan())
        off = float(torch.where(alike, 0.0, (a - b).abs()).nan_to_num(nan=float("inf"), posinf=float("inf")).max())
        if off:
            worst = max(worst, off / max(size, FLOOR * whole, 1e-30))
    return worst


def verdict(ours: float, eagers: float | None, dtype: torch.dtype) -> str:
    """What is wrong with an error, "" if nothing.

    Args:
        ours: from what is exact; or from eager, if nobody knows what is exact.
        eagers: eager's from what is exact, or None.
        dtype: what the row computes in.
    """
    tolerance = TOLERANCE.get(dtype, 1e-4)
    if eagers is None:
        return f"off by {ours:.2g} from eager" if not ours <= WORSE * tolerance else ""
    if not ours <= tolerance and not ours <= WORSE * eagers:  # NaN is wrong too
        return f"off by {ours:.2g} from float64, eager by {eagers:.2g}"
    return ""
