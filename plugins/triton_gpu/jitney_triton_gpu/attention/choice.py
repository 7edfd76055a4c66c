"""How attention of a captured graph is computed: by torch's own kernel where it says the same, or by one of ours."""

from __future__ import annotations

import math

import torch

from jitney_lowering import NotLowered
from jitney_lowering.attention import KEYS, Candidate, Compute, Tile, by_operator, by_torch
from jitney_lowering.ir import HALVES
from jitney_triton_gpu.attention.blocks import widest
from jitney_triton_gpu.attention.draft import LEAST, padded
from jitney_triton_gpu.device import INTERPRETED
from jitney_triton_gpu.policy import POLICY

DTYPES = (*HALVES, torch.float32)
FEW = LEAST - 1  # queries; torch's kernels leave most of a device idle where so few look at many keys
MANY = 64  # matrices of few queries that see all keys, for which torch's kernels are as fast


def takes(candidate: Candidate) -> Compute | None:
    """How this attention is computed; None if it stays as it was written."""
    query, key, value = candidate.query, candidate.key, candidate.value
    if query.dtype not in DTYPES or any(x.dtype is not query.dtype for x in (key, value)):
        return None
    features = max(padded(x.size(-1)) for x in (query, value))
    few = query.size(-2) <= FEW
    if few and (candidate.trains or key.size(-2) < KEYS or (query.size(-2) == 1 and not candidate.lies)):
        return None
    if key.size(-2) < LEAST or features > widest(query.dtype, trains=candidate.trains):
        return None
    try:
        tile = Tile.of(candidate.score, candidate.products.shape, candidate.others, query.device, POLICY)
    except NotLowered:
        return None
    if few and not candidate.others and math.prod(query.shape[:-2]) >= MANY:
        return None
    return (None if few else _by_torch(candidate, tile)) or by_operator(candidate)


def _by_torch(candidate: Candidate, tile: Tile) -> Compute | None:
    query = candidate.query
    return None if INTERPRETED or query.dtype not in HALVES or query.size(-1) % 8 else by_torch(candidate, tile)
