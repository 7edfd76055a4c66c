"""How much of attention is computed at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

ELEMENTS = 1 << 19  # of products that are there at a time: they stay in the caches
ROWS = 128  # of a matrix: with fewer, products of matrices are slow


@dataclass(frozen=True)
class Block:
    """Some rows of some matrices."""

    matrices: int
    rows: int

    @staticmethod
    def of(batch: int, queries: int, keys: int) -> Block:
        """For so many matrices of queries by keys."""
        rows = min(queries, max(ROWS, ELEMENTS // keys))
        if rows < queries:
            return Block(1, rows)
        whole = max(1, ELEMENTS // (queries * keys))
        return Block(math.ceil(batch / math.ceil(batch / whole)), rows)
