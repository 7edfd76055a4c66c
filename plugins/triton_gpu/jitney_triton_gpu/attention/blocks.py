"""How many queries and keys a program of attention has at a time: from measurements on an H100 and an H200."""

from __future__ import annotations

import torch
from torch import Tensor

from jitney_lowering.attention import KEYS
from jitney_triton_gpu.attention.draft import LEAST, Blocks, Matrices, Problem, groups, padded
from jitney_triton_gpu.tiles import PROCESSORS

MOST_PARTS = 64  # which one program puts together

# Features, up to -> queries, keys, warps, stages; of two bytes. More features do not fit into registers.
HALF = {
    "few": {64: (16, 128, 4, 2), 128: (16, 64, 4, 2), 256: (16, 32, 4, 2)},
    "forward": {64: (64, 64, 4, 3), 128: (128, 32, 8, 3), 256: (128, 64, 8, 2)},
    "queries": {64: (64, 32, 4, 3), 128: (64, 32, 4, 2)},
    "keys": {64: (64, 64, 4, 3), 128: (64, 64, 4, 1)},
}
# The same of four bytes.
FULL = {
    "few": {64: (16, 64, 4, 2), 128: (16, 32, 4, 2)},
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
    features = problem.query.size[-1], problem.value.size[-1]
    queries, keys, warps, stages = _usual(problem.query.dtype, problem.queries, features, goal)
    return Blocks(_fitting(queries, problem.queries), _fitting(keys, problem.keys), warps, stages)


def _usual(dtype: torch.dtype, queries: int, features: tuple[int, int], goal: str) -> tuple[int, int, int, int]:
    table = FULL if dtype is torch.float32 else HALF
    goal = "few" if goal == "forward" and queries <= LEAST else goal
    return table[goal][max(*map(padded, features), 64)]


def parts_of(query: Tensor, key: Tensor, value: Tensor) -> int:
    """How many programs share the keys of some queries, so that all processors have some."""
    shared = groups(*(Matrices.of("", x) for x in (query, key, value)))
    count = query.size(-2) * shared
    queries, keys, *_ = _usual(query.dtype, count, (query.size(-1), value.size(-1)), "forward")
    programs = query.shape[:-2].numel() // shared * -(-count // queries)
    if programs >= PROCESSORS // 2 or key.size(-2) < KEYS:
        return 1
    return max(1, min(2 * PROCESSORS // programs, key.size(-2) // keys, MOST_PARTS))


def _fitting(block: int, count: int) -> int:
    """A block no larger than what there is."""
    return max(LEAST, min(block, 1 << (count - 1).bit_length()))
