"""How the lowering says that it leaves something alone."""

from __future__ import annotations


class NoRule(Exception):
    """This operator is not lowered to loops: it runs as a whole. The reason is for the reader."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NoFormula(TypeError):
    """Operands of these dtypes do not fit a scalar operation."""


class NotRepeated(Exception):
    """Equal layers of the graph do not become equal kernels: lower it again, without ``once``."""


class NotLowered(Exception):
    """This graph is not lowered at all, not even as a row of extern calls; run it as it is."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
