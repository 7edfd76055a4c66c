"""The options of the xla backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class XlaOptions:
    """Options of the xla backend.

    Args:
        max_sizes: a graph with sizes that change is compiled for each combination of sizes that comes, as XLA knows no
            symbolic sizes; after so many combinations, others run operator by operator.
    """

    max_sizes: int = 16

    def __post_init__(self) -> None:
        if self.max_sizes < 0:
            raise ValueError(f"max_sizes is a number of compiled forms, got {self.max_sizes}")
