"""Attention of a captured graph as torch's own: for scales, and for a mask of what comes later."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from jitney_lowering.attention.mask import Bound, masks, without
from jitney_lowering.attention.rewriting import Candidate, Compute
from jitney_lowering.attention.tile import Tile
from jitney_lowering.ir import Apply, Constant, Value

CAUSAL = Bound(-1, 1, 0)


def by_torch(candidate: Candidate, tile: Tile) -> Compute | None:
    """The same by ``scaled_dot_product_attention``; None if that says something else."""
    query, key, value = candidate.query, candidate.key, candidate.value
    same = query.shape[:-2] == key.shape[:-2] == value.shape[:-2] and query.size(-1) == value.size(-1)
    if query.dim() > 4 or not same:
        return None
    found = masks(tile.scored, tile.row, tile.column, safe=tile.safe)
    if any(not mask.exact or mask.bounds != (CAUSAL,) for mask in found) or (found and query.size(-2) != key.size(-2)):
        return None
    scale = _factor(without(tile.scored, found), tile.products)
    return None if scale is None else _Fused(scale, bool(found))


def _factor(value: Value, products: Value) -> float | None:
    """By what the products are multiplied; None if something else is done to them."""
    if value is products:
        return 1.0
    if not isinstance(value, Apply) or value.op != "mul":
        return None
    numbers = [a.value for a in value.args if isinstance(a, Constant)]
    rest = [a for a in value.args if not isinstance(a, Constant)]
    inner = _factor(rest[0], products) if len(rest) == 1 else None
    return None if inner is None else inner * float(numbers[0])


class _Fused:
    def __init__(self, scale: float, causal: bool) -> None:
        self.scale, self.causal = scale, causal

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, others: Sequence[Tensor]) -> Tensor:
        """The result, as products give it: contiguous."""
        q, k, v = (x.reshape((1,) * (4 - x.dim()) + x.shape) for x in (query, key, value))
        if query.device.type == "cpu":
            result = self._on_cpu(q, k, v)
        else:
            result = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        return result.reshape(value.shape[:-2] + result.shape[-2:]).contiguous()

    def _on_cpu(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Torch's, which for halves gives some numbers where a score is infinite: these are nan."""
        given = [x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value)]
        attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
        result, sums = attention(*given, is_causal=self.causal, scale=self.scale)
        return result.masked_fill((sums == math.inf).unsqueeze(-1), math.nan)
