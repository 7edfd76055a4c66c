"""What an emitted function returns when its guards do not hold."""

from __future__ import annotations


class Miss:
    """The class of ``MISS``."""

    def __repr__(self) -> str:
        return "MISS"


MISS = Miss()
