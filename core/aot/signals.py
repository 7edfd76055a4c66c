"""Why a graph is not split: it then runs as it was captured."""

from __future__ import annotations


class NotSplit(Exception):
    """The graph does something that functional graphs cannot say.

    Args:
        reason: what it does, for the log.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
