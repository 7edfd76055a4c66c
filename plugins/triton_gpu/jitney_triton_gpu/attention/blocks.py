"""How many queries and keys a program of attention has at a time: from measurements on an H100."""

from __future__ import annotations

import torch

from jitney_triton_gpu.attention.draft import LEAST, Blocks, Problem, padded

# Features, up to -> queries, keys, warps, stages; of two bytes. More features do not fit into registers.
HALF = {
    "forward": {64: (64, 64, 4, 3), 128: (128, 32, 8, 3), 256: (128, 64, 8, 2)},
    "queries": {64: (64, 32, 4, 3), 128: (64, 32, 4, 2)},
    "keys": {64: (64, 64, 4, 3), 128: (64, 64, 4, 1)},
}
# The same of four bytes.
FULL = {
    "forward": {64: (64, 64, 4, 1), 128: (32, 64, 4, 2)},
    "queries": {64: (64, 64, 4, 1)},
    "keys": {64: (64, 32, 4, 1)},
}


def widest(dtype: torch.dtype, *, trains: bool) -> int:
    """The most features that there are blocks for."""
    table = FULL if dtype is torch.float32 else HALF
    goals = table if trains else ("forward",)
    return min(max(table[goal]) for goal in goals)


def blocks(problem: Problem, goal: str) -> Blocks:
    """Those of a function; ``goal``: which one."""
    features = max(padded(problem.query.size[-1]), padded(problem.value.size[-1]), 64)
    table = FULL if problem.query.dtype is torch.float32 else HALF
    queries, keys, warps, stages = table[goal][features]
    return Blocks(_fitting(queries, problem.queries), _fitting(keys, problem.keys), warps, stages)


def _fitting(block: int, count: int) -> int:
    """A block no larger than what there is."""
    return max(LEAST, min(block, 1 << (count - 1).bit_length()))
