"""Float64 as referee: where two results differ by rounding, which of them is further from the truth?

Eager is the measure of everything but of its own roundings. A number that is no further than twice eager's distance
from the same program in float64, or than one unit in the last place, is as good as eager's; and no single element may
be far off.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from jitney_testing.opinfo.compare import same_bits
from jitney_testing.opinfo.samples import Call
from jitney_tools.compare.copies import tensors

WORSE = 2.0  # how much further than eager's a result may be
UNITS = 4.0  # and one element: times eager's furthest, or in units of its own and of the mean size
WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


def widened(call: Call) -> Call:
    """The same call with its floating point arguments, and dtypes among them, in double precision."""
    return dataclasses.replace(call, args=wide(call.args), kwargs=wide(call.kwargs))


def wide(value: Any) -> Any:
    """``value`` in double precision: tensors and dtypes inside plain containers; everything else as it is."""
    if isinstance(value, torch.Tensor):
        plain = value.layout is torch.strided and not value.is_nested and value.dtype in WIDE
        return value.detach().to(WIDE[value.dtype]).requires_grad_(value.requires_grad) if plain else value
    if isinstance(value, torch.dtype):
        return WIDE.get(value, value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(wide, value))
    if type(value) in (list, tuple):
        return type(value)(map(wide, value))
    if isinstance(value, dict):
        return type(value)((key, wide(item)) for key, item in value.items())
    return value


def as_good(eager: Any, found: Any, truth: Any) -> bool:
    """Is every tensor of ``found`` as near to ``truth`` as eager's, by its norm?

    Args:
        eager: results in plain containers.
        found: those of compiled code, alike in structure, shapes and dtypes.
        truth: the same in double precision.
    """
    sides = [list(tensors(side)) for side in (eager, found, truth)]
    if len({len(side) for side in sides}) > 1:
        return False
    return all(_as_good(*(t.detach() for t in three)) for three in zip(*sides, strict=True))


def _as_good(eager: torch.Tensor, found: torch.Tensor, truth: torch.Tensor) -> bool:
    if same_bits(eager, found):
        return True
    if eager.dtype not in WIDE or truth.dtype is not WIDE[eager.dtype] or truth.shape != eager.shape:
        return False
    sides = (eager.to(truth.dtype), found.to(truth.dtype))
    if not all(torch.equal(torch.isfinite(side), torch.isfinite(sides[0])) for side in sides):
        return False
    if not same_bits(*(torch.where(torch.isfinite(side), 0, side) for side in sides)):
        return False
    counts = torch.isfinite(sides[0]) & torch.isfinite(truth)
    far, near = (torch.linalg.vector_norm((side - truth)[counts]) for side in (sides[1], sides[0]))
    unit = torch.finfo(eager.dtype).eps * torch.linalg.vector_norm(truth[counts])
    return bool(far <= torch.maximum(WORSE * near, unit)) and _no_stray(
        *sides, truth, counts, torch.finfo(eager.dtype).eps
    )


def _no_stray(eager: torch.Tensor, found: torch.Tensor, truth: torch.Tensor, counts: torch.Tensor, eps: float) -> bool:
    """Is no single element far off, which the norm of many hides? Where there is no truth, eager's number is it."""
    if not torch.equal(found[~counts].nan_to_num(), eager[~counts].nan_to_num()):
        return False
    found, eager, truth = found[counts], eager[counts], truth[counts]
    if not truth.numel():
        return True
    size = truth.abs() + truth.abs().square().mean().sqrt()
    unit = UNITS * eps * size
    return bool(((found - truth).abs() <= torch.maximum(unit, UNITS * (eager - truth).abs().max())).all())
