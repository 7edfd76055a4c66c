"""Tensors put together of parts."""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, registering
from jitney_lowering.aten.tensor import ZERO, Shape, Tensor
from jitney_lowering.ir.scalar import wrapped
from jitney_lowering.ir.values import Value, apply, constant
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
    """An edge of one value around it."""
    x, amounts, value = call.args
    sides = [call.index(n) for n in amounts]
    call.refuse_unless(all((s.bounds()[0] or 0) >= 0 and s.bounds()[0] is not None for s in sides), "an edge cut off")
    call.refuse_unless(isinstance(value, (bool, int, float)), "a symbolic edge")
    inner = len(x.size) - len(sides) // 2
    edges = [(ZERO, ZERO)] * inner + [(sides[k], sides[k + 1]) for k in range(len(sides) - 2, -1, -2)]
    fill = constant(wrapped(value, x.dtype), x.dtype)
    return call.builder.padded(x, edges, fill, call.stride)


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
