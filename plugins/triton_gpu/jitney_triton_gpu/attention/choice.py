"""How attention of a captured graph is computed: by torch's own kernel where it says the same, or by one of ours."""

from __future__ import annotations

import torch

from jitney_lowering import NotLowered
from jitney_lowering.attention import Candidate, Compute, Tile, by_operator, by_torch
from jitney_lowering.ir import HALVES
from jitney_triton_gpu.attention.blocks import widest
from jitney_triton_gpu.attention.draft import LEAST, padded
from jitney_triton_gpu.device import INTERPRETED
from jitney_triton_gpu.policy import POLICY

DTYPES = (*HALVES, torch.float32)


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
    query = candidate.query
    return None if INTERPRETED or query.dtype not in HALVES or query.size(-1) % 8 else by_torch(candidate, tile)
