"""How attention of a captured graph is computed: by torch's own kernel where it says the same, or by one of ours."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jitney_lowering import NotLowered
from jitney_lowering.attention import Candidate, Compute, Tile, by_operator
from jitney_lowering.ir import HALVES, Apply, Constant, Value
from jitney_triton_gpu.attention.blocks import widest
from jitney_triton_gpu.attention.bounds import Bound, masks, without
from jitney_triton_gpu.attention.draft import LEAST, padded
from jitney_triton_gpu.device import INTERPRETED
from jitney_triton_gpu.policy import POLICY

DTYPES = (*HALVES, torch.float32)
CAUSAL = Bound(-1, 1, 0)


def takes(candidate: Candidate) -> Compute | None:
    """How this attention is computed; None if it stays as it was written."""
    query, key, value = candidate.query, candidate.key, candidate.value
    if query.dtype not in DTYPES or any(x.dtype is not query.dtype for x in (key, value)):
        return None
    features = max(padded(x.size(-1)) for x in (query, value))
    if min(query.size(-2), key.size(-2)) < LEAST or features > widest(query.dtype, trains=candidate.trains):
        return None
    try:
        tile = Tile.of(candidate.score, candidate.products.shape, candidate.others, query.device, POLICY)
    except NotLowered:
        return None
    return _by_torch(candidate, tile) or by_operator(candidate)


def _by_torch(candidate: Candidate, tile: Tile) -> Compute | None:
    """Torch's fused attention: for scales, and for a mask of what comes later."""
    query, key, value = candidate.query, candidate.key, candidate.value
    same = query.shape[:-2] == key.shape[:-2] == value.shape[:-2] and query.size(-1) == value.size(-1)
    if INTERPRETED or query.dtype not in HALVES or query.dim() > 4 or not same or query.size(-1) % 8:
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
        result = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        return result.reshape(value.shape[:-2] + result.shape[-2:]).contiguous()
