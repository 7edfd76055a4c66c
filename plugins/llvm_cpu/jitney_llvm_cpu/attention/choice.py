"""How attention of a captured graph is computed: by torch's own where it says the same, or block by block."""

from __future__ import annotations

import torch

from jitney_llvm_cpu.policy import POLICY
from jitney_lowering import NotLowered
from jitney_lowering.attention import Candidate, Compute, Tile, by_operator, by_torch, masks
from jitney_lowering.ir import HALVES

DTYPES = (torch.float32, *HALVES)
# Products that are not held: from 256 MiB on where a mask spares blocks, from 2 GiB on otherwise. On eight threads,
# 2,048 and 4,096 tokens, causal ones were 1.1 to 1.5 times as fast as whole products, others 0.6 to 0.8 times.
LARGE, LARGEST = 1 << 26, 1 << 29


def takes(candidate: Candidate) -> Compute | None:
    """How this attention is computed; None if it stays as it was written."""
    query, key, value = candidate.query, candidate.key, candidate.value
    if query.dtype not in DTYPES or any(x.dtype is not query.dtype for x in (key, value)):
        return None
    try:
        tile = Tile.of(candidate.score, candidate.products.shape, candidate.others, query.device, POLICY)
    except NotLowered:
        return None
    if query.dtype in HALVES:  # in float32 torch's exponentials are less exact than eager's, as its gradients are here
        return None if candidate.trains else by_torch(candidate, tile)
    found = masks(tile.scored, tile.row, tile.column, safe=tile.safe)
    spares = any(bound.number is None for mask in found for bound in mask.bounds)
    return by_operator(candidate) if candidate.products.numel() >= (LARGE if spares else LARGEST) else None
