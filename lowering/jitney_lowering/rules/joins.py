"""Tensors put together of parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, registering
from jitney_lowering.aten.tensor import ZERO, Shape, Tensor
from jitney_lowering.index import Index, max_, min_
from jitney_lowering.ir.values import Value, apply
from jitney_lowering.rules.creation import number
from jitney_lowering.rules.views import inserted

aten = torch.ops.aten
JOINS: dict[Any, Rule] = {}


join = registering(JOINS)


@join(aten.cat.default)
def cat(call: Call) -> Tensor:
    """One after another."""
    parts, dim = call.args
    parts = [p for p in parts if not (len(p.size) == 1 and p.size[0] == 0 and len(call.size) != 1)]
    dim = axis(dim, len(call.size)) if len(call.size) > 1 else 0  # of nothing but empty parts, torch takes any
    return joined(call, [converted(p, call.dtype) for p in parts], dim)


@join(aten.stack.default)
def stack(call: Call) -> Tensor:
    """One after another in a new dimension."""
    parts, dim = call.args
    dim = axis(dim, len(call.size))
    return joined(call, [inserted(converted(p, call.dtype), dim) for p in parts], dim)


@join(aten.constant_pad_nd.default)
def pad(call: Call) -> Tensor:
    """An edge of one value around it; one of negative width is cut off."""
    x, amounts, value = call.args
    sides = [call.index(n) for n in amounts]
    call.refuse_unless(all(_sign(s) is not None for s in sides), "an edge of unknown sign")
    call.refuse_unless(isinstance(value, (bool, int, float)), "a symbolic edge")
    inner = len(x.size) - len(sides) // 2
    edges = [(ZERO, ZERO)] * inner + [(sides[k], sides[k + 1]) for k in range(len(sides) - 2, -1, -2)]
    fill = number(value, x.dtype).value
    cut = [tuple(ZERO if _sign(s) == 1 else s for s in pair) for pair in edges]
    added = [(s if _sign(s) == 1 else ZERO, t if _sign(t) == 1 else ZERO) for s, t in edges]
    if any(s != 0 for pair in cut for s in pair):
        size = [n + first + last for n, (first, last) in zip(x.size, cut, strict=True)]
        x = x.view(size, lambda at: [i - first for i, (first, _) in zip(at, cut, strict=True)], whole=False)
    if all(s == 0 for pair in added for s in pair):
        return call.result(x.load)
    return call.builder.padded(x, added, fill, call.stride)


def _sign(side: Index) -> int | None:
    """1 for a width that is never negative, -1 for one that never is positive."""
    low, high = side.bounds()
    return 1 if low is not None and low >= 0 else -1 if high is not None and high <= 0 else None


REFLECTED = (aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
REPEATED = (aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)


@join(*REFLECTED)
def reflection_pad(call: Call) -> Tensor:
    """Edges in which the tensor is seen in a mirror; the outermost element is not repeated."""

    def reflected(i: Index, last: Index) -> Index:
        return last - _absolute(last - _absolute(i))

    return _edged(call, reflected)


@join(*REPEATED)
def replication_pad(call: Call) -> Tensor:
    """Edges that repeat the outermost element."""
    return _edged(call, lambda i, last: min_(max_(i, ZERO), last))


def _edged(call: Call, inside: Callable[[Index, Index], Index]) -> Tensor:
    """``inside``: from a place, from the tensor's first one, and its last one, to the place that is read."""
    x, amounts = call.args
    kept = len(x.size) - len(amounts) // 2
    before = [call.index(n) for n in amounts[-2::-2]]
    x = call.builder.spread(x)

    def element(at: Shape) -> Value:
        places = [inside(i - b, n - 1) for i, b, n in zip(at[kept:], before, x.size[kept:], strict=True)]
        return x.load((*at[:kept], *places))

    return call.result(element)


def _absolute(i: Index) -> Index:
    return max_(i, -i)


def converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in another dtype."""
    if x.dtype is dtype:
        return x

    def element(at: Shape) -> Value:
        return apply("cast", x.load(at), dtype=dtype)

    return Tensor(x.size, dtype, x.device, element, wanted=x.wanted)


def joined(call: Call, parts: list[Tensor], dim: int) -> Tensor:
    """Parts of equal dtype one after another along ``dim``: they lie in memory, and are then copied together."""
    if len(parts) == 1:
        return call.result(parts[0].load)
    return call.builder.joined(parts, dim, call.size, call.stride)
