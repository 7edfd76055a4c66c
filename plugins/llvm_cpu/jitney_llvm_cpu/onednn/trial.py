"""Which of two ways to the same numbers takes less time where the program runs: both are timed in some of its calls."""

from __future__ import annotations

from dataclasses import dataclass, field

TRIES = 4  # calls of each way, of which the fastest counts
GAIN = 0.9  # of the time of plain weights, at most, for those in order: they take caches from others, and memory


@dataclass
class Trial:
    """Weights in oneDNN's order, with a digest of what they are made of, or plain ones.

    Which of both is faster depends on caches, on threads and on what else the program does: in one thread, reading many
    weights twice from memory takes as long as putting them in order.

    Args:
        packs: what was found; None before that.
        packed: seconds of calls with weights in order.
        plain: seconds of calls with plain weights; None before the two were compared.
    """

    packs: bool | None = None
    packed: list[float] = field(default_factory=list)
    plain: list[float] | None = None

    @property
    def packs_next(self) -> bool:
        """Is it the turn of weights in order?"""
        return len(self.packed) <= len(self.plain or ())

    def compare(self, same: bool) -> None:
        """The results of both are known: unless they are the same to the bit, plain weights are no choice."""
        if same:
            self.plain = []
        else:
            self.packs = True

    def add(self, packed: bool, seconds: float) -> None:
        """A call of one way took so long."""
        plain = [] if self.plain is None else self.plain
        (self.packed if packed else plain).append(seconds)
        if min(len(self.packed), len(plain)) >= TRIES:
            self.packs = min(self.packed) < GAIN * min(plain)
