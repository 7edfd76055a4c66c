"""Scans: running sums, products, extremes and logarithms of sums.

Where eager's kernel goes through a row in order, as on CPUs, float32 adds up in float64; where it is a tree, as on
GPUs, in float32. Halves are accumulated in float32 on both.
"""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, registering
from jitney_lowering.aten.tensor import ONE, Shape, Tensor, count
from jitney_lowering.index import fits_int32
from jitney_lowering.ir.loops import SCANS as KINDS
from jitney_lowering.ir.operations import HALVES
from jitney_lowering.ir.values import Value, apply, constant, position
from jitney_lowering.rules.reductions import mapped

aten = torch.ops.aten
SCANS: dict[Any, Rule] = {}


scan = registering(SCANS)


@scan(aten.cumsum.default)
def cumsum(call: Call) -> Tensor:
    """The sums of all elements up to each, along one dimension."""
    return _arithmetic(call, "cumsum")


@scan(aten.cumprod.default)
def cumprod(call: Call) -> Tensor:
    """The products of all elements up to each, along one dimension."""
    return _arithmetic(call, "cumprod")


def _arithmetic(call: Call, kind: str) -> Tensor:
    """float64 stays an operator where eager goes in order: whether it overflows depends on the order."""
    ordered = call.builder.policy.scans_in_order
    call.refuse_unless(call.dtype is not torch.bool, "a scan of truth values")
    call.refuse_unless(call.dtype is not torch.float64 or not ordered, f"a {kind} of float64")
    source = mapped(call, call.args[0], call.dtype)
    return _running(call, kind, mapped(call, source, _accumulated(call.dtype, ordered)), call.dtype, call.stride)


@scan(aten.logcumsumexp.default)
def logcumsumexp(call: Call) -> Tensor:
    """The logarithms of the sums of the powers of e up to each."""
    ordered = call.builder.policy.scans_in_order
    call.refuse_unless(call.dtype.is_floating_point, f"a logarithm as {call.dtype}")
    source = mapped(call, call.args[0], _accumulated(call.dtype, ordered))
    return _running(call, "logcumsumexp", source, call.dtype, call.stride)


@scan(aten.cummax.default)
def cummax(call: Call) -> list[Tensor]:
    """The greatest up to each, and the last place where it is."""
    return _extremes(call, "cummax")


@scan(aten.cummin.default)
def cummin(call: Call) -> list[Tensor]:
    """The least up to each, and the last place where it is."""
    return _extremes(call, "cummin")


def _extremes(call: Call, kind: str) -> list[Tensor]:
    """Places are the greatest so far of those where an element equals the extreme so far; any nan is one."""
    x = call.args[0]
    values, places = call.val
    size = call.builder.sizes.shape
    call.refuse_unless(all(n.value != 0 for n in x.size), "a scan of nothing, along any dimension")
    source = mapped(call, x, torch.uint8) if x.dtype is torch.bool else x
    best = _running(call, kind, source, source.dtype, size(values.stride()))
    if not x.size or x.size[axis(call.args[1], len(x.size))].value == 1:
        zeros = Tensor(x.size, torch.int64, x.device, lambda at: constant(0, torch.int64))
        return [mapped(call, best, x.dtype), zeros]
    dim = axis(call.args[1], len(x.size))
    number = torch.int32 if fits_int32(x.size[dim]) else torch.int64

    def taken(at: Shape) -> Value:
        here = source.load(at)
        hit = apply("eq", here, best.load(at))
        if here.dtype.is_floating_point:
            hit = apply("or", hit, apply("ne", here, here))
        return apply("where", hit, position(at[dim], number), constant(0, number))

    rows = Tensor(x.size, number, x.device, taken)
    return [mapped(call, best, x.dtype), call.builder.scan("cummax", rows, dim, torch.int64, size(places.stride()))]


def _running(call: Call, kind: str, source: Tensor, dtype: torch.dtype, stride: Shape) -> Tensor:
    """A scan of ``source``, whose dtype is that of the accumulator; results in ``dtype``.

    What stays an operator as a whole: a single row, which threads cannot share, and, unless the policy has rows side by
    side, a dimension that is not innermost in memory.
    """
    policy = call.builder.policy
    call.refuse_unless(kind in policy.scans, "a scan")
    rank = len(source.size)
    if not rank or source.size[axis(call.args[1], rank)].value == 1:
        return _alone(source, KINDS[kind] == "sum" and rank > 0, dtype, stride)
    dim = axis(call.args[1], rank)
    rows = count([n for d, n in enumerate(source.size) if d != dim])
    call.refuse_unless(source.size[dim].value != 0 and rows.value not in (0, 1), "a scan of a single row")
    call.refuse_unless(stride[dim] is ONE or policy.scanned_across, "a scan across rows")
    return call.builder.scan(kind, source, dim, dtype, stride)


def _alone(source: Tensor, adds: bool, dtype: torch.dtype, stride: Shape) -> Tensor:
    """Of one element: itself, or what it adds to 0."""

    def element(at: Shape) -> Value:
        value = source.load(at)
        if adds and value.dtype.is_floating_point:
            value = apply("add", value, constant(0.0, value.dtype))
        return apply("cast", value, dtype=dtype)

    return Tensor(source.size, dtype, source.device, element, wanted=stride)


def _accumulated(dtype: torch.dtype, ordered: bool) -> torch.dtype:
    """In what results of a dtype are accumulated; integers wrap, so that narrow ones may be in what is wider."""
    if dtype in HALVES:
        return torch.float32
    if dtype.is_floating_point:
        return torch.float64 if ordered else dtype
    return torch.int64 if ordered or dtype is torch.int64 else torch.int32
