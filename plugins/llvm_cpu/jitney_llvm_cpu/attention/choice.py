"""How attention of a captured graph is computed: by torch's own where it says the same, or block by block."""

from __future__ import annotations

import torch

from jitney_llvm_cpu.attention.rows import POLICY
from jitney_lowering import NotLowered
from jitney_lowering.attention import Candidate, Compute, Tile, by_operator
from jitney_lowering.attention.fused import by_torch
from jitney_lowering.ir import HALVES

DTYPES = (torch.float32, *HALVES)
LARGE = 1 << 26  # products, 256 MiB: from here on they are not held


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
    return by_operator(candidate) if candidate.products.numel() >= LARGE else None
