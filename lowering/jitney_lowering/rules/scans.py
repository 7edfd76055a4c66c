"""Scans: running sums. Floats add up in float64, half-precision floats in float32, as eager's kernel for CPUs does."""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, registering
from jitney_lowering.aten.tensor import ONE, Tensor, count
from jitney_lowering.rules.reductions import mapped
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
SCANS: dict[Any, Rule] = {}


scan = registering(SCANS)


@scan(aten.cumsum.default)
def cumsum(call: Call) -> Tensor:
    """The sums of all elements up to each, along one dimension that is innermost in memory.

    What stays an operator as a whole: float64, whose sums overflow or not by the order of the additions; a single row,
    which threads cannot share; a dimension that is not innermost.
    """
    x = call.args[0]
    call.refuse_unless(call.builder.policy.scans, "a scan")
    call.refuse_unless(call.dtype is not torch.float64 and call.dtype is not torch.bool, f"a scan of {call.dtype}")
    rank = len(x.size)
    if not rank:
        raise NoRule("a scan of a number")
    dim = axis(call.args[1], rank)
    source = mapped(call, x, call.dtype)
    if x.size[dim].value == 1:
        return mapped(call, source, call.dtype, lambda element: element)  # a copy: the result is no view of it
    rows = count([n for d, n in enumerate(x.size) if d != dim])
    call.refuse_unless(x.size[dim].value != 0 and rows.value not in (0, 1), "a scan of a single row")
    call.refuse_unless(call.stride[dim] is ONE, "a scan across rows")
    running = mapped(call, source, _accumulated(call.dtype))
    return call.builder.scan("cumsum", running, dim, call.dtype, call.stride)


def _accumulated(dtype: torch.dtype) -> torch.dtype:
    if not dtype.is_floating_point:
        return torch.int64
    return torch.float64 if dtype is torch.float32 else torch.float32
